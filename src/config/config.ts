import type { LeaseSettings } from '../control-server/protocol';

/**
 * A loaded configuration: what `temporal.yaml` says, checked, with every default filled in and every duration in ms.
 * Nothing below this file looks at YAML again.
 */
export interface Config {
  /** The file it was read from, for messages. */
  readonly file: string;
  readonly connection: ConnectionConfig;
  /** Task queue of the owners. The host's own queue is `<taskQueue>.<host id>`. */
  readonly taskQueue: string;
  /** What `temporal-systemd worker` runs in this process. */
  readonly run: readonly ('workflows' | 'host')[];
  /** Used where `run` has `host`. Elsewhere a default that the machine has no answer for (its id, its bus) is `''`. */
  readonly host: HostConfig;
  /** By name; without a prototype, so that a name that a workflow sends finds a program or nothing. */
  readonly programs: Readonly<Record<string, Program>>;
}

/** What the file says of the connection; what it leaves out comes from `@temporalio/envconfig`. */
export interface ConnectionConfig {
  readonly address?: string;
  readonly namespace?: string;
  /** Profile of the Temporal client configuration; the default profile where absent. */
  readonly profile?: string;
  readonly tls?: {
    readonly serverName?: string;
    readonly serverRootCaFile?: string;
    readonly clientCertFile?: string;
    readonly clientKeyFile?: string;
  };
  /** Path of a file that holds the API key; the key itself is never in the configuration. */
  readonly apiKeyFile?: string;
}

export interface HostConfig {
  /** Id of this host in Temporal; the machine id where the file says none. */
  readonly id: string;
  /** Kept over reboots: the instance. */
  readonly stateDirectory: string;
  /** Emptied by a reboot: one directory per generation. */
  readonly runDirectory: string;
  readonly systemd: {
    /** `unix:path=…` of the bus, already resolved from `auto | system | user`. */
    readonly busAddress: string;
    /** Whose manager it is; a user's manager runs unprivileged. */
    readonly manager: 'system' | 'user';
    /** Mount point of cgroup2, or `auto`: found in the mount table. */
    readonly cgroupRoot: string;
    /** Units are called `<prefix>-<resource>-g<generation>.service`, their slice `<prefix>.slice`. */
    readonly unitPrefix: string;
  };
  /** How often all units are read again, events or not. */
  readonly resyncMs: number;
  readonly capacity: CapacityConfig;
}

/** How much a host takes on; no limit where absent. */
export interface CapacityConfig {
  /** Resources at the same time. */
  readonly units?: number;
  /** The `limits.memory` of their programs together, in bytes. */
  readonly memoryBytes?: number;
}

/** A host-side definition of what may run (G10). A workflow names it and fills its parameters, nothing else. */
export interface Program {
  readonly name: string;
  /** The executable's absolute path, then its arguments; arguments may hold `${parameter}` and `${resource}`. */
  readonly exec: readonly [string, ...string[]];
  /** Parameter name → anchored pattern that a value must match whole. Values are public: they stand in Temporal. */
  readonly parameters: Readonly<Record<string, RegExp>>;
  readonly user?: string;
  readonly group?: string;
  /** `${resource}` is allowed. */
  readonly workingDirectory?: string;
  /** Later ones win; `${resource}` is allowed; a leading `-` makes a file optional. */
  readonly environmentFiles: readonly string[];
  /** Wins over every file. */
  readonly environment: Readonly<Record<string, string>>;
  /** Credential name → absolute path of the file that systemd loads it from; `${resource}` is allowed. */
  readonly credentials: Readonly<Record<string, string>>;
  readonly limits: {
    readonly memoryBytes?: number;
    /** Cores: 0.5 is half of one. */
    readonly cpuCores?: number;
    readonly tasks?: number;
  };
  /** `strict` is the set in `hardening.ts`, `off` none of it; a record is put over the strict set, property by property. */
  readonly hardening: Hardening;
  readonly stop: {
    /** e.g. `SIGTERM` */
    readonly signal: NodeJS.Signals;
    readonly timeoutMs: number;
    readonly killMode: 'control-group' | 'mixed';
  };
  /** `exec`: ready once executed. `notify`: ready once it says so (sd_notify(3)). */
  readonly ready: 'exec' | 'notify';
  /** How long a notify program may take to be ready. */
  readonly readyTimeoutMs: number;
  /** How long the process may live without word from its owner; at least 3,000, and at least what a control server takes. */
  readonly leaseMs: number;
  readonly restart: RestartPolicy;
  /** Where the process listens; the host allocates it for each generation. A control server has it in `control`. */
  readonly endpoint?: Listen;
  /** Present where the program is a control server. */
  readonly control?: ControlConfig;
}

/** The first free port of a range on an address, or a unix socket (`${resource}` is allowed). */
export type Listen =
  { readonly host: string; readonly ports: readonly [first: number, last: number] } | { readonly socket: string };

/** How a control server is started, adopted and renewed; `docs/control-server.md`. */
export interface ControlConfig {
  /** Version of the ownership protocol. */
  readonly protocol: 1;
  /** On a loopback address where it is a port. */
  readonly listen: Listen;
  /** The directory that it works in; `${resource}` is allowed. */
  readonly home: string;
  /** What a server must have to be adopted. */
  readonly capabilities: readonly string[];
  /** Whether the next owner adopts a server that is left; otherwise it is shut down. */
  readonly survive: boolean;
  /** What becomes of the resource's own server when it can't be adopted. */
  readonly onRefused: 'stop' | 'wait';
  /** What cancelling the owner's workflow does. */
  readonly onCancel: 'stop' | 'stop-if-started' | 'leave';
  /** What the server's own lease is resolved from; see `effectiveLease`. */
  readonly lease: LeaseSettings;
  /** Reading the record: time for one try, and how many more there are. `timeoutMs` is for all calls of an adoption together. */
  readonly recovery: { readonly readTimeoutMs: number; readonly readRetries: number; readonly timeoutMs: number };
  /** Of a fresh server: how often it is asked, how long one try may take, and all of them. `require`: else it is stopped. */
  readonly health: {
    readonly intervalMs: number;
    readonly timeoutMs: number;
    readonly withinMs: number;
    readonly require: boolean;
  };
}

export type Hardening = 'strict' | 'off' | Readonly<Record<string, HardeningValue>>;
export type HardeningValue = boolean | string | readonly string[];

export interface RestartPolicy {
  readonly policy: 'no' | 'on-failure' | 'always';
  /** Wait before the first restart; doubles up to `maxBackoffMs`. */
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
  /** So many restarts in a row are made, then the owner gives up. */
  readonly limit: number;
  /** A process that ran this long starts the count anew. */
  readonly resetAfterMs: number;
}
