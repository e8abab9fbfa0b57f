import { SystemdError, type SystemdErrorKind } from './port';

/**
 * What an error that came over the bus means here. Names from systemd's bus-common-errors.h and the D-Bus
 * specification. A name that is not in the table proves nothing and reads as `unknown` (G4).
 */
const KINDS: Readonly<Record<string, SystemdErrorKind>> = {
  'org.freedesktop.systemd1.NoSuchUnit': 'no-such-unit',
  'org.freedesktop.systemd1.NoUnitForInvocationID': 'no-such-invocation',
  'org.freedesktop.systemd1.UnitExists': 'unit-exists',

  'org.freedesktop.systemd1.TransactionIsDestructive': 'busy',
  'org.freedesktop.systemd1.TransactionJobsConflicting': 'busy',
  'org.freedesktop.systemd1.UnitBusy': 'busy', // since v256: the unit is frozen

  'org.freedesktop.systemd1.LoadFailed': 'bad-unit',
  'org.freedesktop.systemd1.BadUnitSetting': 'bad-unit',
  'org.freedesktop.systemd1.UnitMasked': 'bad-unit',
  'org.freedesktop.systemd1.JobTypeNotApplicable': 'bad-unit',
  'org.freedesktop.systemd1.TransactionOrderIsCyclic': 'bad-unit',
  'org.freedesktop.systemd1.OnlyByDependency': 'bad-unit',
  'org.freedesktop.DBus.Error.InvalidArgs': 'bad-unit',
  'org.freedesktop.DBus.Error.InvalidSignature': 'bad-unit',
  'org.freedesktop.DBus.Error.NotSupported': 'bad-unit',
  // StartTransientUnit's word for a property that this version does not know.
  'org.freedesktop.DBus.Error.PropertyReadOnly': 'bad-unit',

  'org.freedesktop.DBus.Error.AccessDenied': 'refused',
  'org.freedesktop.DBus.Error.AuthFailed': 'refused',
  'org.freedesktop.DBus.Error.InteractiveAuthorizationRequired': 'refused',

  'org.freedesktop.systemd1.ShuttingDown': 'shutting-down',

  // Listed although they are the default: the outcome of the call may be either.
  'org.freedesktop.DBus.Error.NoReply': 'unknown',
  'org.freedesktop.DBus.Error.Timeout': 'unknown',
  'org.freedesktop.DBus.Error.TimedOut': 'unknown',
  'org.freedesktop.DBus.Error.Disconnected': 'unknown',
  'org.freedesktop.DBus.Error.LimitsExceeded': 'unknown',
  'org.freedesktop.DBus.Error.ServiceUnknown': 'unknown', // PID 1 is off the bus, e.g. in a daemon-reexec
  'org.freedesktop.DBus.Error.NameHasNoOwner': 'unknown',
  // Only "nothing matched", which is no proof that nothing lives.
  'org.freedesktop.systemd1.NoSuchProcess': 'unknown',
};

/** The kind of an error by its D-Bus name. */
export function kindOfDBusError(dbusName: string): SystemdErrorKind {
  return Object.hasOwn(KINDS, dbusName) ? KINDS[dbusName]! : 'unknown';
}

/** The error for a call that was answered with an error. `call` names the method and the unit. */
export function answeredError(call: string, dbusName: string, text: string): SystemdError {
  return new SystemdError(kindOfDBusError(dbusName), `${call}: ${text || 'refused without a reason'} (${dbusName})`, {
    dbusName,
  });
}

/** A call that was certainly not sent: its effect can't come later. Its kind is `unknown` all the same. */
export class UnsentError extends SystemdError {
  constructor(call: string, why: string, options?: { readonly cause?: unknown }) {
    super('unknown', `${call}: not sent: ${why}`, options);
  }
}

/** The message of anything that was thrown. By its shape: errors of Node itself may come from another realm. */
export function messageOf(error: unknown): string {
  const message: unknown = (error as { message?: unknown } | null | undefined)?.message;
  return typeof message === 'string' ? message : String(error);
}
