import { chown, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Program } from '../config/config';
import { expand } from '../config/expand';
import { PROTOCOL, type StartAnswer, type StartInput } from '../contract/activities';
import type { Endpoint } from '../contract/endpoint';
import { placedEndpoint, type Placement } from '../contract/facts';
import { generationUnit, leaseUnits, resourceSlice } from '../contract/names';
import { SystemdError, type Job, type TransientUnit, type UnitProperties } from '../systemd/port';
import { adopt, look, type Adopted } from './adoption';
import { filesOf, type HostContext } from './context';
import { controlEnvironment, makeCredential, placeControl } from './control-server';
import { allocateEndpoint, endpointEnvironment, endpointValues, NoPortError } from './endpoint';
import { mergeEnvironment } from './environment';
import { exitScriptPath, provideExitScript } from './exit-record';
import { isUnwritable } from './files';
import type { GenerationFiles, LaunchRecord, LeaseRecord } from './generation-files';
import { isArmed, leasePair, stopLeaseUnit } from './lease';
import { messageOf } from './log';
import { listenOf, ProgramRefusedError, valuesOf } from './programs';
import { together } from './turns';
import { resourceSliceUnit, serviceUnit } from './unit';
import { uidOf } from './users';

/** The run directory takes no writes, so nothing of this attempt was started. Of earlier ones it says nothing. */
export class NothingStartedError extends Error {
  override readonly name = 'NothingStartedError';
}

/** What this worker started or took over, for the observer to go on with. */
export interface Started {
  readonly answer: StartAnswer;
  readonly files?: GenerationFiles;
  readonly launch?: LaunchRecord;
  /** Whether that launch record is on disk. */
  readonly recorded?: boolean;
  /** Of a process that was started: whether its lease timer waits. The service only *wants* it, and would run without. */
  readonly leased?: boolean;
}

/**
 * Starts a generation, or adopts what already runs: inspect, decide, start, record. Whatever is retried, raced, delayed
 * or cut off, one process or none comes of it (G5), because
 *
 * 1. every earlier generation is closed *before* anything is looked at, so no other attempt can start behind the look;
 * 2. a generation's directory is made once, above the floor, and the floor is read again after its `open` file exists;
 * 3. the unit asserts that file, so that systemd refuses a start that was overtaken while it was under way;
 * 4. one call makes process, lease and slice, and when its outcome is unknown an answered look-up by name decides.
 *
 * `received` is the moment (µs of CLOCK_MONOTONIC) at which the request reached this host: the first lease runs from it.
 */
export async function startGeneration(host: HostContext, input: StartInput, received: number): Promise<Started> {
  let prepared: Started | Prepared;
  try {
    prepared = await makeReady(host, input, received);
  } catch (error) {
    // Not an answer: the generations before may not be closed, and what came of an earlier start is as unknown as before.
    if (isUnwritable(error)) throw new NothingStartedError(unwritable(host, error), { cause: error });
    throw error;
  }
  if ('answer' in prepared) return prepared;
  const { program, launch, files, lease } = prepared;
  return start(host, program, launch, files, lease);
}

/** A generation with all that must exist before systemd may execute it. */
interface Prepared {
  readonly program: Program;
  readonly launch: LaunchRecord;
  readonly files: GenerationFiles;
  readonly lease: LeaseRecord;
}

function unwritable({ runDirectory }: HostContext, error: NodeJS.ErrnoException): string {
  const what =
    error.code === 'EROFS' ? 'is mounted read-only: mount it read-write' : 'is full: free space or inodes in it';
  return `nothing was started, for the run directory ${runDirectory} ${what} (${error.message}); it is tried again`;
}

/** All of a start up to the call of systemd: what there is instead of a start, or what is to be started. */
async function makeReady(host: HostContext, input: StartInput, received: number): Promise<Started | Prepared> {
  const { resource, generation } = input;
  const { instance } = host.identity;
  const resourceFiles = filesOf(host, host.prefix, resource);

  const outdated = (highest: number): Started => ({ answer: { kind: 'outdated', highest, instance } });
  const highest = Math.max(await resourceFiles.floor(), ...(await resourceFiles.generations()));
  // Also where a process lives that could be adopted: this may be an attempt from an hour ago, whose owner has gone on. One
  // whose owner was reset is sent again, above the highest, and adopts then.
  if (highest >= generation) return outdated(highest);
  const program = host.programs.find(input); // not before: an owner that is refused believes that nothing of it was started
  if (program.control && !input.recovered) {
    const { survive, onRefused } = program.control;
    return { answer: { kind: 'recover', instance, plan: { survive, onRefused } } };
  }
  await resourceFiles.close(generation - 1);

  const before = await look(host, resource);
  // A control server is adopted by its own protocol, before; what lives now is not adopted any more.
  const adopted = program.control ? undefined : asStarted(await adopt(host, input, before));
  if (adopted) return adopted;
  const highestUnit = Math.max(0, ...before.units.map((unit) => unit.generation));
  if (highestUnit >= generation) return outdated(highestUnit);
  const { obstacle, living } = before;
  if (obstacle !== undefined) return { answer: { kind: 'stop-first', reason: obstacle, instance, living } };

  const full = host.capacity.take(resource, program.limits.memoryBytes, input.goesOn);
  if (full !== undefined) return { answer: { kind: 'full', reason: full, instance } };

  const files = await resourceFiles.make(generation);
  if (!files) return outdated(generation); // another attempt for this generation was faster
  const holder = { prefix: host.prefix, resource, generation };
  const lease = { n: 1, oldest: 1, deadline: received + program.leaseMs * 1000 };
  let launch: LaunchRecord;
  let endpoint: Endpoint | undefined;
  try {
    const listen = listenOf(program);
    endpoint = listen && (await allocateEndpoint(listen, valuesOf(input), host.ports, holder));
    launch = await prepare(host, program, input, files, lease, endpoint);
    await files.open();
    const floor = await resourceFiles.floor();
    if (floor >= generation) {
      await drop(host, files, resource, endpoint);
      return outdated(floor);
    }
  } catch (error) {
    await drop(host, files, resource, endpoint); // nothing was asked of systemd yet
    if (error instanceof NoPortError) return { answer: { kind: 'blocked', reason: error.message, instance } };
    throw error;
  }
  return { program, launch, files, lease };
}

/** Lets go of a generation of which nothing was started. */
async function drop(
  host: HostContext,
  files: GenerationFiles,
  resource: string,
  endpoint: Endpoint | undefined,
): Promise<void> {
  host.capacity.free(resource);
  await files.remove();
  await host.ports.free({ prefix: host.prefix, resource, generation: files.generation }, endpoint);
}

function asStarted(adopted: Adopted | undefined): Started | undefined {
  return adopted && { answer: { kind: 'adopted', placement: adopted.launch.placement }, ...adopted };
}

/** Writes everything that must exist before systemd may execute the generation. */
async function prepare(
  host: HostContext,
  program: Program,
  input: StartInput,
  files: GenerationFiles,
  lease: LeaseRecord,
  endpoint: Endpoint | undefined,
): Promise<LaunchRecord> {
  const values = valuesOf(input);
  const control = program.control && endpoint && placeControl(program.control, values, input.owner, files, endpoint);
  const [executable, ...rest] = program.exec;
  const inArguments = { ...values, ...(program.endpoint && endpoint && endpointValues(endpoint)) };
  const command = [executable, ...rest.map((argument) => expand(argument, inArguments))];
  const environment = await mergeEnvironment(
    program,
    values,
    {
      OWNED_RESOURCE: input.resource,
      OWNED_GENERATION: String(files.generation),
      ...(program.endpoint && endpoint && endpointEnvironment(endpoint)),
      ...(control && controlEnvironment(program.control, control, input.owner)),
    },
    host.root,
  );
  const uid = program.user === undefined ? undefined : await uidOf(program.user);
  const launch: LaunchRecord = {
    version: 1,
    resource: input.resource,
    parameters: input.parameters,
    owner: input.owner,
    definition: host.programs.fingerprint(program),
    memoryBytes: program.limits.memoryBytes,
    placement: {
      ...placementOf(host, program, input, files.generation),
      ...(program.endpoint && { endpoint }),
      control,
    },
    command,
    environment: environment.layers,
    uid,
  };
  await together([
    provideExitScript(host.root, host.runDirectory),
    files.launch.write(launch),
    files.lease.write(lease),
    files.writeEnvironment(environment.file),
    makeExitDirectory(files, uid),
    ...(control ? [makeCredential(host, files)] : []),
  ]);
  return launch;
}

async function makeExitDirectory(files: GenerationFiles, uid: number | undefined): Promise<void> {
  const exit = join(files.outside, 'exit');
  await mkdir(exit, { mode: 0o700 });
  if (uid !== undefined) await chown(exit, uid, -1);
}

async function start(
  host: HostContext,
  program: Program,
  launch: LaunchRecord,
  files: GenerationFiles,
  lease: LeaseRecord,
): Promise<Started> {
  const { placement, resource } = launch;
  const { unit, slice, stopTimeoutMs } = placement;
  const service = serviceUnit({
    unit,
    slice,
    leaseTimer: leaseUnits(unit, 1).timer,
    resource,
    program,
    command: launch.command,
    values: { ...launch.parameters, resource },
    owner: launch.owner,
    files,
    exitScript: exitScriptPath(host.runDirectory),
    manager: host.identity.manager === 'system' ? 'system' : 'user',
  });
  const pair = leasePair(host, unit, 1, lease.deadline, stopTimeoutMs);
  let begin: Begin = { job: 'unknown' };
  try {
    begin = await begun(host, unit, program, await send(host, service, pair, resourceSliceUnit(slice, resource)));
  } catch (error) {
    if (!(error instanceof SystemdError)) throw error;
    if (error.kind !== 'unknown') {
      // An answer: nothing was made, and nothing is on its way.
      await drop(host, files, resource, placedEndpoint(placement));
      if (error.kind === 'bad-unit') throw new ProgramRefusedError(error.message, { cause: error });
      return { answer: { kind: 'blocked', reason: error.message, instance: placement.instance } };
    }
    host.log.warn('start: outcome unknown, looking it up', { resource, unit, error: error.message });
  }
  return settle(host, launch, files, lease, begin);
}

/** What was heard of a start, and the unit where it was seen to have begun. */
interface Begin {
  /** The job's result, `running`, or `unknown`. */
  readonly job: string;
  readonly unit?: UnitProperties;
}

/**
 * Resolves once the unit has begun, or its job is over: when it is executed, where that is what its readiness
 * means; a notify program with its invocation, for its readiness is awaited beside the hold, or its first lease would end
 * it. Not at the job's end alone: where the main process fails at once, the job lasts as long as its children do.
 */
async function begun(host: HostContext, unit: string, program: Program, job: Job): Promise<Begin> {
  let result: string | undefined;
  let wake = (): void => undefined;
  const stopListening = host.systemd.onUnitChanged((changed) => void (changed === unit && wake()));
  void job.done
    .then((done) => (result = done))
    .catch(() => (result = 'unknown'))
    .then(() => wake());
  try {
    for (;;) {
      const woken = new Promise<void>((resolve) => (wake = resolve)); // before the reading
      if (result !== undefined) return { job: result };
      const seen = await readStarted(host, unit);
      const executed = program.ready === 'notify' || seen?.ActiveState !== 'activating';
      if (seen?.InvocationID && executed) return { job: result ?? 'running', unit: seen };
      await woken;
    }
  } finally {
    stopListening();
  }
}

/** One call for process, lease and slice; without the slice where it is loaded already (an earlier generation's). */
async function send(
  host: HostContext,
  service: TransientUnit,
  pair: TransientUnit[],
  slice: TransientUnit,
): Promise<Job> {
  try {
    return await host.systemd.startTransientUnit(service, [...pair, slice]);
  } catch (error) {
    if (!(error instanceof SystemdError) || error.kind !== 'unit-exists') throw error;
    // Answered: nothing was made. Only the slice's name can have been there before; were it the service's own, this
    // second call is refused as well.
    return host.systemd.startTransientUnit(service, pair);
  }
}

/**
 * Looks up what came of the start. The unit decides and not the job's word: a job ends `failed` or `canceled` over
 * programs that ran. Absent, or without an invocation, in an *answered* look-up means that nothing started (InvocationID
 * is set before anything is executed); the generation is closed, in case the call is still on its way.
 */
async function settle(
  host: HostContext,
  launch: LaunchRecord,
  files: GenerationFiles,
  lease: LeaseRecord,
  begin: Begin,
): Promise<Started> {
  const { resource, placement } = launch;
  const { instance } = placement;
  let unit = begin.unit ?? (await readStarted(host, placement.unit));
  if (!unit?.InvocationID) {
    // Closed, and looked up again: systemd may have come to the start between the first look and the closing.
    await filesOf(host, placement.prefix, resource).close(placement.generation);
    unit = await readStarted(host, placement.unit);
  }
  if (!unit?.InvocationID) {
    await drop(host, files, resource, placedEndpoint(placement));
    await stopLeaseUnit(host, leaseUnits(placement.unit, 1).timer).catch(() => undefined); // then it ends by itself, later
    const seen = unit ? `it never ran (${unit.Result ?? '?'})` : 'it is not there';
    return {
      answer: {
        kind: 'blocked',
        reason: `systemd did not start ${placement.unit}: job ${begin.job}, ${seen}`,
        instance,
      },
    };
  }
  const started: LaunchRecord = {
    ...launch,
    placement: { ...placement, invocation: unit.InvocationID, cgroupId: unit.ControlGroupId ?? '' },
  };
  // Where it can't be written, this worker and the owner know it all the same; the next start adopts by systemd's word.
  const writing = files.launch.write(started).then(
    () => true,
    (error: unknown) => {
      host.log.warn('the start could not be recorded', { resource, unit: placement.unit, error: messageOf(error) });
      return false;
    },
  );
  const [recorded, leased] = await Promise.all([writing, isArmed(host, placement.unit, lease)]);
  host.log.info('started', { resource, generation: placement.generation, unit: placement.unit });
  return { answer: { kind: 'started', placement: started.placement }, files, launch: started, recorded, leased };
}

function readStarted(host: HostContext, unit: string): Promise<UnitProperties | undefined> {
  return host.systemd.unitProperties(unit, ['InvocationID', 'ActiveState', 'ControlGroupId', 'Result']);
}

function placementOf(host: HostContext, program: Program, input: StartInput, generation: number): Placement {
  const { hostId, instance, bootIds } = host.identity;
  return {
    host: hostId,
    instance,
    bootId: bootIds.at(-1)!,
    prefix: host.prefix,
    generation,
    unit: generationUnit(host.prefix, input.resource, generation),
    slice: resourceSlice(host.prefix, input.resource),
    invocation: '',
    cgroupId: '',
    program: program.name,
    leaseMs: program.leaseMs,
    stopTimeoutMs: program.stop.timeoutMs,
    notifies: program.ready === 'notify',
    restart: program.restart,
    protocol: PROTOCOL,
  };
}
