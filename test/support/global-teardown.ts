import { endSharedServer } from './shared-server';

// Jest wants its hooks as default exports.
// eslint-disable-next-line import-x/no-default-export
export default endSharedServer;
