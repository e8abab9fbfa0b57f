/** Workflow type of a host's claim on its id. */
export const HOST_WORKFLOW = 'systemd.host';

/** Who has a host id: input and memo (`claim`) of the workflow `host:<id>`. */
export interface HostClaim {
  readonly host: string;
  readonly instance: string;
  readonly machineId: string;
  readonly taskQueue: string;
}
