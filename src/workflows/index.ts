/**
 * The workflows that a worker for owners has to run. A plugin can't put workflows into somebody's bundle, so re-export
 * them from your own workflows module: `export * from 'temporal-systemd/workflows';`
 */
export { ownResource as 'systemd.own' } from './own-resource';
export { serveHost as 'systemd.host' } from './host';
