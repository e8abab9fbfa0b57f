import { join } from 'node:path';

/**
 * How a process of the oracle behaves: `steady` ends when it is told to, `stubborn` does not hear SIGTERM, `brief` ends by
 * itself after some seconds, `family` as well and leaves a child in another session, which writes on and is stubborn.
 */
export type Manner = 'steady' | 'stubborn' | 'brief' | 'family';

/** What a process of the oracle wrote at one moment. */
export interface TraceLine {
  readonly resource: string;
  readonly generation: number;
  readonly pid: number;
  readonly bootId: string;
  /** µs of CLOCK_MONOTONIC. */
  readonly at: number;
  /** `beside`: it began while a process of this resource held the lock. `deaf`: it was sent a SIGTERM. */
  readonly event: 'start' | 'tick' | 'end' | 'beside' | 'deaf';
}

/** Something that must never be, with the lines that show it. */
export interface Violation {
  readonly resource: string;
  readonly what: string;
  readonly evidence: readonly string[];
}

/** While this lasted, nobody can have renewed a lease. µs of CLOCK_MONOTONIC. */
export interface Silence {
  readonly from: number;
  readonly to: number;
}

/** Where the processes of a resource write. */
export function traceFile(folder: string, resource: string): string {
  return join(folder, `${resource.replaceAll('/', '_')}.trace`);
}

/**
 * The command of a program of the oracle, as `exec` in temporal.yaml. The lock is the kernel's word beside the trace's: it
 * is inherited by every child and lasts as long as any of them, also one that is frozen and writes nothing.
 */
export function oracleCommand(folder: string, manner: Manner): readonly string[] {
  const payload = join(__dirname, 'oracle-payload.js');
  // No parameter of a workflow may stand in a script's text; so the file's name is made from the resource in here.
  const script =
    'trace=$1/$(printf %s "$2" | tr / _).trace; exec 9>>"$trace.lock"; flock --nonblock 9 || export ORACLE_BESIDE=1; ' +
    'exec "$4" --v8-pool-size=0 "$5" "$trace" "$2" "$3"';
  return ['/bin/sh', '-c', script, 'oracle', folder, '${resource}', manner, process.execPath, payload];
}

/** The lines of a trace, in the order in which they were written. */
export interface Trace {
  readonly lines: readonly TraceLine[];
  /** Lines that were cut off: a process was killed, or its host, in the middle of a write. */
  readonly torn: number;
}

/** Reads a trace. What is not a whole line says nothing. */
export function parseTrace(text: string): Trace {
  const lines: TraceLine[] = [];
  let torn = 0;
  for (const line of text.split('\n')) {
    if (line === '') continue;
    // Not anchored at its beginning: a line that was cut off has no end, and what follows stands right behind it.
    const match = /([A-Za-z0-9._/-]+) (\d+) (\d+) ([0-9a-f-]{36}) (\d+) (start|tick|end|beside|deaf)$/.exec(line);
    if (match?.index !== 0) torn++;
    if (!match) continue;
    const [, resource, generation, pid, bootId, at, event] = match as unknown as Required<RegExpExecArray>;
    lines.push({
      resource: resource!,
      generation: Number(generation),
      pid: Number(pid),
      bootId: bootId!,
      at: Number(at),
      event: event as TraceLine['event'],
    });
  }
  return { lines, torn };
}

/** A line as it was written. */
export function traceText({ resource, generation, pid, bootId, at, event }: TraceLine): string {
  return `${resource} ${generation} ${pid} ${bootId} ${at} ${event}`;
}

/** The lines of one generation in one boot: all that it wrote, when everything is well. */
interface Stretch {
  readonly lines: TraceLine[];
  readonly first: TraceLine;
}

/**
 * Every moment at which two generations of a resource lived (G2), or a start was made twice (G5). The lines are those of
 * one resource, in the order of its file. Three things have to agree:
 *
 * - the file's order: a generation that writes after a later one has begun has outlived it;
 * - the clock, within one boot: no generation begins before the last line of the former;
 * - the lock: no process begins while another one has it.
 *
 * That generations only grow is checked as well: it is what a process fences its own storage with.
 */
export function overlapsIn(lines: readonly TraceLine[]): readonly Violation[] {
  const violations: Violation[] = [];
  const report = (what: string, ...evidence: readonly TraceLine[]): void =>
    void violations.push({ resource: evidence[0]!.resource, what, evidence: evidence.map(traceText) });

  const stretches: Stretch[] = [];
  for (const line of lines) {
    if (line.event === 'beside') report('a process began while another one of its resource lived', line);
    const current = stretches.at(-1);
    if (current && sameStretch(current.first, line)) {
      current.lines.push(line);
      continue;
    }
    const former = stretches.find(({ first }) => sameStretch(first, line));
    if (former) report('a generation lived on when the next one had begun', former.lines.at(-1)!, current!.first, line);
    else if (current && line.generation <= current.first.generation)
      report('a generation follows a later one', current.first, line);
    if (current && line.bootId === current.first.bootId && line.at < latest(current.lines).at)
      report('a generation began before the last sign of life of the former', latest(current.lines), line);
    stretches.push({ lines: [line], first: line });
  }
  return violations;
}

function sameStretch(a: TraceLine, b: TraceLine): boolean {
  return a.generation === b.generation && a.bootId === b.bootId;
}

function latest(lines: readonly TraceLine[]): TraceLine {
  return lines.reduce((last, line) => (line.at > last.at ? line : last));
}

/** What a lease is checked against. */
export interface LeaseCheck {
  /** How long a process may live into a silence: its lease, its time to stop, and a margin. */
  readonly allowedMs: number;
  /** While the host's systemd was stopped, and could end nothing: that time does not count. */
  readonly paused?: readonly Silence[];
}

/** How the leases of a resource's processes have ended. */
export interface LeaseReport {
  /** How many silences were so long, and met a process, that its lease was put to the test. */
  readonly tested: number;
  readonly violations: readonly Violation[];
}

/** Looks for processes that live on in a silence, in which nobody can have renewed their lease (G7). */
export function checkLeases(
  lines: readonly TraceLine[],
  silences: readonly Silence[],
  { allowedMs, paused = [] }: LeaseCheck,
): LeaseReport {
  let tested = 0;
  const begins = new Map<number, number>();
  for (const { generation, at } of lines) if (!begins.has(generation)) begins.set(generation, at);
  // A start that was asked for before may come late, and its first lease begins with it.
  const since = (silence: Silence, generation: number): number => Math.max(silence.from, begins.get(generation)!);
  const violations = merged(silences).flatMap((silence): Violation[] => {
    if (elapsed(silence.from, silence.to, paused) <= allowedMs * 1000) return [];
    const before = lines.filter(({ at }) => at <= silence.from).at(-1);
    if (before && before.event !== 'end' && before.at > silence.from - 100_000) tested++;
    const late = lines.find(
      ({ at, generation }) => at <= silence.to && elapsed(since(silence, generation), at, paused) > allowedMs * 1000,
    );
    if (!late) return [];
    const from = since(silence, late.generation);
    const ms = Math.round((late.at - from) / 1000);
    const what = `a process lived for ${ms} ms after the last moment of a renewal (µs ${from}), ${allowedMs} were allowed`;
    return [{ resource: late.resource, what, evidence: [...(before ? [before] : []), late].map(traceText) }];
  });
  return { tested, violations };
}

/** That a generation, and all before it, were proven dead. */
export interface ProofClaim {
  readonly resource: string;
  readonly generation: number;
  /** µs of CLOCK_MONOTONIC of the last reading. */
  readonly readAt: number;
}

/** A proof is dated by the other clock, in ms, and a machine may correct that one a little. */
const CLOCKS_US = 50_000;

/** Processes that wrote after they had been proven dead (G3). */
export function outlivedProofs(lines: readonly TraceLine[], claims: readonly ProofClaim[]): readonly Violation[] {
  return claims.flatMap(({ resource, generation, readAt }) => {
    const after = lines.find((line) => line.generation <= generation && line.at > readAt + CLOCKS_US);
    if (!after) return [];
    const what = `generation ${generation} was proven dead at µs ${readAt}, and a process of it or before lived on`;
    return [{ resource, what, evidence: [traceText(after)] }];
  });
}

/** Silences that touch or overlap are one. */
export function merged(silences: readonly Silence[]): readonly Silence[] {
  const result: Silence[] = [];
  for (const silence of [...silences].sort((a, b) => a.from - b.from)) {
    const last = result.at(-1);
    if (last && silence.from <= last.to)
      result[result.length - 1] = { from: last.from, to: Math.max(last.to, silence.to) };
    else result.push(silence);
  }
  return result;
}

/** µs from one moment to another, without those of the pauses. */
function elapsed(from: number, to: number, pauses: readonly Silence[]): number {
  const without = (sum: number, pause: Silence): number =>
    sum - Math.max(0, Math.min(to, pause.to) - Math.max(from, pause.from));
  return merged(pauses).reduce(without, to - from);
}
