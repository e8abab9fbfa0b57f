/**
 * Types of the failures that cross Temporal (`ApplicationFailure.type`). An error class does not survive the way from
 * an activity to a workflow to a client; its type string does.
 */
export const FailureType = {
  /** A stop is not proven yet. Retryable; details[0] is a {@link StillRunningDetails}. Never a final state. */
  StillRunning: 'StillRunning',
  /** The host has no such program, or the parameters do not fit it. Trying again can't help until temporal.yaml changes. */
  ProgramRefused: 'ProgramRefused',
  /** The host takes on no more resources, or is being drained. Nothing was started; another host may have room. */
  HostFull: 'HostFull',
  /**
   * The host could not begin with a start, for its run directory is full or read-only: nothing came of this attempt. What
   * came of earlier ones is as unknown as before.
   */
  NothingStarted: 'NothingStarted',
  /** The activity's input is malformed or meant for another instance. */
  InvalidRequest: 'InvalidRequest',
  /** Another machine or manager that goes by the same host id has answered. It knows nothing of the process (G4). */
  WrongInstance: 'WrongInstance',
  /** The outcome of a call to the host's systemd is unknown (G4). */
  Unknown: 'Unknown',
  /** A person reset the hold's activity; the owner holds again. */
  HoldAgain: 'HoldAgain',
  /** The request names another owner (its first run id) than the one that got it. */
  NotThisOwner: 'NotThisOwner',
  /** Enough callers wait for this already; ask again soon. Refused before it is recorded, so that asking costs no history. */
  Busy: 'Busy',
} as const;

export type FailureType = (typeof FailureType)[keyof typeof FailureType];
