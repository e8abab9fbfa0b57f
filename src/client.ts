/** Everything that backend code needs: `import { OwnershipClient } from 'temporal-systemd/client'`. */
export { OwnershipClient } from './client/ownership-client';
export type { ListedHost, ListedOwner, OwnershipClientOptions, OwnOptions, OwnReturn } from './client/ownership-client';
export { OwnerHandle } from './client/owner-handle';
export type { AskOptions, LiveStatus, OwnedEndpoint, StopOptions } from './client/owner-handle';
export {
  HostFullError,
  HostUnreachableError,
  NoAnswerError,
  NoEndpointError,
  NoHostError,
  NoOwnerError,
  NotReadyError,
  OwnershipConflictError,
  OwnershipError,
  OwnUnconfirmedError,
  ProgramRefusedError,
  RequestRefusedError,
  StillRunningError,
} from './client/errors';
export type { ControlStatus, Recovery, RecoveryReason, RecoveryScope } from './contract/control';
export type { Endpoint } from './contract/endpoint';
export { InvalidResourceError } from './contract/names';
export type { ExitReport, Placement, Proof, RemainingProcess } from './contract/facts';
export type { HoldDetails } from './contract/activities';
export type { Drain, DrainRequest, HostDetails, HostReport, HostStatus } from './contract/host';
export type { OwnerState, OwnerStatus, OwnResult, RequestAnswer } from './contract/owner';
