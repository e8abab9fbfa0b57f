/** For programs that serve the ownership protocol: `import { serveOwned } from 'temporal-systemd/control-server'`. */
export { serveOwned } from './server';
export type { OwnedServer, ServeOwnedOptions } from './server';
export { createOwnership } from './ownership';
export type { EndReason, Ownership, OwnershipOptions } from './ownership';
export { OwnedEnvironmentError, readOwnedEnvironment } from './environment';
export type { OwnedEnvironment } from './environment';
export { CONTROL_PROTOCOL, ControlPath, effectiveLease } from './protocol';
export type {
  AdoptAnswer,
  Endpoint,
  ControlFault,
  ControlFaultCode,
  EffectiveLease,
  HealthAnswer,
  Identity,
  LeaseSettings,
  OwnerRequest,
  RenewAnswer,
  ServerOwner,
} from './protocol';
