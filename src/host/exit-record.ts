import { constants as osConstants } from 'node:os';
import { join } from 'node:path';
import type { ExitReport } from '../contract/facts';
import type { UnitProperties } from '../systemd/port';
import { readBounded, readIfThere, writeFileWhole } from './files';

/** A record longer than this is not read (G8: the process can write what it likes into its directory). */
const MAX_RECORD_BYTES = 4096;

/**
 * Run by `ExecStopPost=` as the unit's user, with the record's directory as its argument. A file, and not a command
 * line: systemd 252 loses `ExecStopPostEx`, and expands `$` in the plain form.
 */
const EXIT_RECORD_SCRIPT = `#!/bin/sh
# Written by temporal-systemd. Keeps how the process ended; see systemd.exec(5), $SERVICE_RESULT.
printf '{"result":"%s","code":"%s","status":"%s"}\\n' "$SERVICE_RESULT" "$EXIT_CODE" "$EXIT_STATUS" > "$1/record"
`;

/** Where the script lies, as the host's own processes see it. */
export function exitScriptPath(runDirectory: string): string {
  return join(runDirectory, 'exit-record.sh');
}

/** Sees to it that the script is in the run directory. Writes nothing where it is, for the disk may be full. */
export async function provideExitScript(root: string, runDirectory: string): Promise<void> {
  const path = join(root, exitScriptPath(runDirectory));
  if ((await readIfThere(path)) !== EXIT_RECORD_SCRIPT) await writeFileWhole(path, EXIT_RECORD_SCRIPT, 0o755);
}

/** What `ExecStopPost` wrote, each token bounded and cleaned. */
export interface ExitRecord {
  readonly result: string;
  readonly code: string;
  readonly status: string;
}

/**
 * Reads an exit record without following a link at its end and without ever waiting for a pipe; its directory's own
 * path belongs to the host. Undefined for anything that is not a small regular file with JSON in it.
 */
export async function readExitRecord(path: string): Promise<ExitRecord | undefined> {
  try {
    const { text } = await readBounded(path, MAX_RECORD_BYTES);
    const parsed: unknown = text === undefined ? undefined : JSON.parse(text);
    if (typeof parsed !== 'object' || parsed === null) return undefined;
    const { result, code, status } = parsed as Record<string, unknown>;
    return { result: token(result), code: token(code), status: token(status) };
  } catch {
    return undefined; // none, a link, a socket (ENXIO), unreadable, not JSON: all the same to the wording
  }
}

/** At most 32 of `[A-Za-z0-9_-]`, else `?`. */
function token(value: unknown): string {
  return typeof value === 'string' && /^[A-Za-z0-9_-]{1,32}$/.test(value) ? value : '?';
}

/** What the wording is made from. */
export interface ExitFacts {
  /** The unit's own properties, read while its invocation was the recorded one. */
  readonly unit?: UnitProperties;
  readonly record?: ExitRecord;
  /** The lease was over when the process ended, as far as is known. */
  readonly leaseOver: boolean;
  readonly rebooted: boolean;
}

/**
 * How the process ended, for people and for the restart policy. After a reboot nothing is known. Otherwise the manager's
 * own word counts first, then that the lease was over (that is what ended it), then the exit record. Unknown is never
 * success.
 */
export function exitReport(facts: ExitFacts): ExitReport {
  if (facts.rebooted) return unknown('host restarted', 'boot');
  const { unit, record } = facts;
  if (unit?.Result === 'start-limit-hit') return unknown('restarted outside', 'unit');
  if (facts.leaseOver) return { wording: 'unowned', kind: 'unowned', source: 'lease' };
  if (unit && (unit.ExecMainCode ?? 0) !== 0) {
    return ended(unit.ExecMainCode === 1 ? 'exited' : 'killed', unit.ExecMainStatus ?? -1, unit.Result ?? '?', 'unit');
  }
  if (record) {
    const status = statusOf(record);
    if (status !== undefined) return ended(record.code, status, record.result, 'exit record');
    return unknown('unreadable exit record', 'exit record');
  }
  return unknown('no exit record', 'none');
}

function ended(code: string, status: number, result: string, source: ExitReport['source']): ExitReport {
  if (code === 'exited') {
    const wording = status === 0 ? 'exit 0' : `exit ${status} (${result})`;
    return { wording, kind: 'exit', status, source };
  }
  return { wording: `signal ${status}`, kind: 'signal', status, source };
}

function unknown(why: string, source: ExitReport['source']): ExitReport {
  return { wording: `unknown: ${why}`, kind: 'unknown', source };
}

/** Exit code or signal number; systemd writes a signal's name without SIG (systemd.exec(5), $EXIT_STATUS), or its number. */
function statusOf({ code, status }: ExitRecord): number | undefined {
  const signal = code === 'killed' || code === 'dumped';
  if (signal && Object.hasOwn(osConstants.signals, `SIG${status}`))
    return osConstants.signals[`SIG${status}` as NodeJS.Signals];
  return (signal || code === 'exited') && /^[0-9]{1,3}$/.test(status) ? Number(status) : undefined;
}
