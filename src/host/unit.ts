import { constants } from 'node:os';
import { dirname } from 'node:path';
import type { Program } from '../config/config';
import { expand } from '../config/expand';
import { hardeningSettings } from '../config/hardening';
import type { OwnerIdentity } from '../contract/activities';
import { CREDENTIAL_NAME } from '../control-server/protocol';
import type { TransientUnit, UnitProperties, UnitSetting } from '../systemd/port';
import type { GenerationFiles } from './generation-files';

/** Everything that a generation's service is made from. */
export interface ServiceParts {
  readonly unit: string;
  readonly slice: string;
  readonly leaseTimer: string;
  readonly resource: string;
  readonly program: Program;
  readonly command: readonly string[];
  /** The parameters and the resource, for templates. */
  readonly values: Readonly<Record<string, string>>;
  readonly owner: OwnerIdentity;
  readonly files: GenerationFiles;
  readonly exitScript: string;
  /** Whose manager it is: a user's can't apply every hardening. */
  readonly manager: 'system' | 'user';
}

/** The resource's slice as an auxiliary unit: PID 1 removes it with its last unit, for nobody else ever stops it. */
export function resourceSliceUnit(name: string, resource: string): TransientUnit {
  return {
    name,
    properties: [
      ['Description', 's', `temporal-systemd: everything of ${resource}`],
      ['StopWhenUnneeded', 'b', true],
    ],
  };
}

/** The transient service of one generation. Each property that ownership rests on has its reason beside it. */
export function serviceUnit(parts: ServiceParts): TransientUnit {
  const { program, files, owner } = parts;
  return {
    name: parts.unit,
    properties: [
      ['Description', 's', `${parts.resource} (${program.name}, generation ${files.generation})`],
      ['Slice', 's', parts.slice],
      // PID 1 is the arbiter of a late start: it checks the file itself, right before it would execute anything.
      ['Asserts', 'a(sbbs)', [['AssertPathExists', false, false, files.openFile]]],
      // Wants, not Requires: the service must not take part in the timers' comings and goings.
      ['Wants', 'as', [parts.leaseTimer]],
      ['After', 'as', [parts.leaseTimer]],
      ['Type', 's', program.ready],
      // Any process of the program may say that it is ready. systemd-notify(1) in a script is not the main process, and only
      // root's may speak for it.
      ...optional('NotifyAccess', 's', program.ready === 'notify' ? 'all' : undefined),
      // Results stay readable after the end, over a crash of whoever wanted to read them.
      ['RemainAfterExit', 'b', true],
      ['CollectMode', 's', 'inactive'],
      // Restarting is the owner's, after proof. One start per unit is a bump against other hands.
      ['Restart', 's', 'no'],
      ['StartLimitBurst', 'u', 1],
      ['StartLimitIntervalUSec', 't', 3_600_000_000 * 24 * 365],
      ['KillMode', 's', program.stop.killMode],
      ['KillSignal', 'i', constants.signals[program.stop.signal]],
      ['TimeoutStopUSec', 't', program.stop.timeoutMs * 1000],
      ['TimeoutStartUSec', 't', program.readyTimeoutMs * 1000],
      ['LogExtraFields', 'aay', ownerMarks(parts.resource, files.generation, owner).map((field) => Buffer.from(field))],
      ['ExecStart', 'a(sasb)', [execCommand(parts.command)]],
      ['ExecStopPost', 'a(sasb)', [execCommand(['/bin/sh', parts.exitScript, files.exitDirectory])]],
      ['EnvironmentFiles', 'a(sb)', [[files.environmentFile, false]]],
      ...optional('User', 's', program.user),
      ...optional('Group', 's', program.group),
      ...optional('WorkingDirectory', 's', program.workingDirectory && expand(program.workingDirectory, parts.values)),
      ...optional('LoadCredential', 'a(ss)', credentials(parts)),
      ...optional('MemoryMax', 't', program.limits.memoryBytes),
      ...optional(
        'CPUQuotaPerSecUSec',
        't',
        program.limits.cpuCores && Math.round(program.limits.cpuCores * 1_000_000),
      ),
      ...optional('TasksMax', 't', program.limits.tasks),
      ...hardeningSettings(program.hardening, parts.resource, parts.manager),
      // Under ProtectSystem=strict the exit record's directory would be read-only.
      ...optional('ReadWritePaths', 'as', program.hardening === 'off' ? undefined : writablePaths(parts)),
    ],
  };
}

/** The exit record's directory; what a control server works in; where a socket is to be made. Both of these may be missing. */
function writablePaths({ program, files, values }: ServiceParts): readonly string[] {
  const listen = program.control?.listen ?? program.endpoint;
  const socketIn = listen && 'socket' in listen ? dirname(expand(listen.socket, values)) : '/';
  const home = program.control && expand(program.control.home, values);
  return [
    files.exitDirectory,
    ...(home === undefined ? [] : [`-${home}`]),
    ...(socketIn === '/' ? [] : [`-${socketIn}`]), // the whole file system would be no protection
  ];
}

/**
 * Fields that tell a resource's own unit from a stranger's (G6): they stand in the unit, where other users can't change
 * them, and survive daemon-reload. Another namespace's or task queue's unit is a stranger.
 */
export function ownerMarks(resource: string, generation: number, owner: OwnerIdentity): readonly string[] {
  return [
    `OWNED_RESOURCE=${resource}`,
    `OWNED_GENERATION=${generation}`,
    `OWNED_NAMESPACE=${owner.namespace}`,
    `OWNED_TASK_QUEUE=${owner.taskQueue}`,
    `OWNED_BY=${owner.ownerId}`,
  ];
}

/** Whether a unit was started for this resource by an owner of this namespace and task queue. */
export function isOwn(unit: UnitProperties, resource: string, generation: number, owner: OwnerIdentity): boolean {
  const found = unit.LogExtraFields ?? [];
  // All but the last: an earlier owner of the same resource is no stranger.
  return ownerMarks(resource, generation, owner)
    .slice(0, -1)
    .every((mark) => found.includes(mark));
}

/** `(path, argv, ignore failure)`; the plain form of an exec property expands `$`, so each one is doubled. */
export function execCommand(command: readonly string[], ignoreFailure = false): [string, string[], boolean] {
  return [command[0]!, command.map((argument) => argument.replaceAll('$', '$$$$')), ignoreFailure];
}

function credentials(parts: ServiceParts): [string, string][] | undefined {
  const { program, files, values } = parts;
  const entries = Object.entries(program.credentials).map(([name, path]): [string, string] => [
    name,
    expand(path, values),
  ]);
  if (program.control) entries.push([CREDENTIAL_NAME, files.credentialFile]);
  return entries.length === 0 ? undefined : entries;
}

function optional(name: string, signature: string, value: unknown): UnitSetting[] {
  return value === undefined ? [] : [[name, signature, value]];
}
