import type { Manner } from '../support/oracle';

/** What is broken. `forMs` is how long it lasts. */
export type Fault =
  | { readonly kind: 'worker killed' | 'worker paused' | 'reboot'; readonly forMs: number }
  /** A second worker serves the host for a while; then it is killed, or the first one ends. */
  | { readonly kind: 'worker beside' | 'worker replaced'; readonly forMs: number }
  | { readonly kind: 'systemd paused' | 'bus cut' | 'bus held'; readonly forMs: number }
  | { readonly kind: 'systemd reloaded' | 'systemd executed anew' | 'bus restarted' }
  /** That of the run directory. */
  | { readonly kind: 'disk full' | 'disk read-only'; readonly forMs: number }
  | { readonly kind: 'Temporal killed' | 'Temporal ended'; readonly forMs: number };

/** What somebody with root on the host does to a resource, or to the next one that has what it takes. */
export type Hands = { readonly resource: string } & (
  | { readonly kind: 'unit stopped' | 'unit restarted' | 'unit killed' | 'unit property set' | 'timer stopped' }
  | { readonly kind: 'slice stopped' | 'slice killed' | 'slice property set' }
  | { readonly kind: 'unit frozen' | 'slice frozen' | 'prefix slice frozen'; readonly forMs: number }
  | { readonly kind: 'unit failure reset'; readonly forMs: number }
  /** One with a name like this host's, by somebody who is none of its owners. */
  | { readonly kind: 'unit by hand'; readonly forMs: number }
  /** A process that is moved into a cgroup, and one that is moved out. */
  | { readonly kind: 'stray in unit' | 'stray in slice'; readonly forMs: number }
  | { readonly kind: 'main moved out' | 'child moved out'; readonly forMs: number }
);

/** What a client asks for, or what is done to an owner in Temporal. */
export type Request =
  | { readonly kind: 'own' | 'restart' | 'release' | 'terminate'; readonly resource: string }
  /** To the first or the last workflow task of the run; `forgetful`: without the requests that came later. */
  | { readonly kind: 'reset'; readonly resource: string; readonly to: 'first' | 'last'; readonly forgetful: boolean }
  | { readonly kind: 'stop'; readonly resource: string; readonly now: boolean }
  | { readonly kind: 'hold paused'; readonly resource: string; readonly forMs: number };

/** One thing that happens, `at` ms after the beginning. */
export type Step = { readonly at: number } & (
  | ({ readonly what: 'fault'; readonly lane: FaultLane } & Fault)
  | ({ readonly what: 'hands' } & Hands)
  | ({ readonly what: 'request' } & Request)
);

/** Faults of a lane come one after the other; those of different lanes meet. */
export type FaultLane = 'worker' | 'systemd' | 'Temporal';

export interface Plan {
  readonly resources: readonly { readonly name: string; readonly manner: Manner }[];
  /** By time. */
  readonly steps: readonly Step[];
}

export interface PlanOptions {
  readonly seed: number;
  readonly forMs: number;
  readonly resources: number;
}

/** Long enough for every lease to end, and for the checker to see whether it did; see `ALLOWED_MS` in campaign.ts. */
const BEYOND_THE_LEASE_MS: Range = [13_000, 15_000];
const SHORT_MS: Range = [200, 2_500];

type Range = readonly [from: number, to: number];
/** Something that is done, and how long it may last. */
type Card<Kind> = readonly [kind: Kind, lasts?: Range];

/** Each lane deals all its cards in random order before it shuffles them anew, so that a short campaign has every kind. */
const FAULTS: Readonly<Record<FaultLane, { readonly cards: readonly Card<Fault['kind']>[]; readonly pauseMs: Range }>> =
  {
    worker: {
      cards: [
        ['worker killed', SHORT_MS],
        ['worker killed', BEYOND_THE_LEASE_MS],
        ['worker paused', SHORT_MS],
        ['worker paused', BEYOND_THE_LEASE_MS],
        ['worker beside', SHORT_MS],
        ['worker replaced', SHORT_MS],
        ['reboot', SHORT_MS],
      ],
      pauseMs: [4_000, 9_000],
    },
    systemd: {
      cards: [
        ['systemd paused', SHORT_MS],
        ['systemd paused', [3_000, 6_000]],
        ['systemd reloaded'],
        ['systemd executed anew'],
        ['bus restarted'],
        ['bus cut', SHORT_MS],
        ['bus cut', [5_000, 8_000]],
        ['bus held', SHORT_MS],
        ['disk full', [1_000, 6_000]],
        ['disk read-only', [1_000, 6_000]],
      ],
      pauseMs: [2_000, 7_000],
    },
    Temporal: {
      cards: [
        ['Temporal killed', SHORT_MS],
        ['Temporal ended', BEYOND_THE_LEASE_MS],
      ],
      pauseMs: [25_000, 40_000], // after each of them it takes a while until everybody is connected again
    },
  };

const SOME_SECONDS_MS: Range = [500, 9_000];

const HANDS: readonly Card<Hands['kind']>[] = [
  ['unit stopped'],
  ['unit restarted'],
  ['unit killed'],
  ['unit frozen', SOME_SECONDS_MS],
  ['unit property set'],
  ['unit failure reset', SHORT_MS],
  ['unit by hand', SOME_SECONDS_MS],
  ['slice stopped'],
  ['slice killed'],
  ['slice frozen', SOME_SECONDS_MS],
  ['slice property set'],
  ['prefix slice frozen', SHORT_MS],
  ['timer stopped'],
  ['stray in unit', SOME_SECONDS_MS],
  ['stray in slice', SOME_SECONDS_MS],
  ['main moved out', SHORT_MS],
  ['child moved out', SHORT_MS],
];
const HANDS_EVERY_MS: Range = [700, 2_000];

/** How often each request stands in the deck. `own` most, or soon nothing would run. */
const REQUESTS: Readonly<Record<Request['kind'], number>> = {
  own: 16,
  stop: 3,
  restart: 3,
  release: 2,
  terminate: 2,
  reset: 2,
  'hold paused': 1,
};
const REQUEST_EVERY_MS: Range = [100, 500];

/** Who there is: most of them as processes should be, the others as they are. */
const MANNERS: readonly Manner[] = ['steady', 'steady', 'stubborn', 'family', 'brief'];

/**
 * What a campaign will do: a pure function of its options, so that a seed names a plan. What comes of the plan differs from
 * run to run, for the machine is as fast as it is.
 */
export function planOf({ seed, forMs, resources: count }: PlanOptions): Plan {
  const random = new Random(seed);
  const resources = Array.from({ length: count }, (_, n) => ({
    name: `chaos/r-${String(n).padStart(2, '0')}`,
    manner: MANNERS[n % MANNERS.length]!,
  }));
  const anyone = (): string => random.of(resources).name;
  const steps: Step[] = resources.map(({ name }, n) => ({ at: n * 100, what: 'request', kind: 'own', resource: name }));

  for (const [lane, { cards, pauseMs }] of Object.entries(FAULTS) as [FaultLane, (typeof FAULTS)[FaultLane]][]) {
    const deck = new Deck(random, cards);
    let at = random.in([7_000, 12_000]);
    for (;;) {
      const fault = dealt(random, deck) as Fault & { readonly forMs?: number };
      const lastsMs = fault.forMs ?? 0;
      if (at + lastsMs > forMs) break;
      steps.push({ at, what: 'fault', lane, ...fault });
      at += lastsMs + random.in(pauseMs);
    }
  }

  const hands = new Deck(random, HANDS);
  for (let at = random.in([5_000, 7_000]); at < forMs; at += random.in(HANDS_EVERY_MS)) {
    steps.push({ at, what: 'hands', ...({ ...dealt(random, hands), resource: anyone() } as Hands) });
  }

  const requests = new Deck(
    random,
    (Object.keys(REQUESTS) as Request['kind'][]).flatMap((kind) => Array<Request['kind']>(REQUESTS[kind]).fill(kind)),
  );
  for (let at = random.in([3_000, 5_000]); at < forMs; at += random.in(REQUEST_EVERY_MS)) {
    const kind = requests.deal();
    const resource = anyone();
    if (kind === 'stop') steps.push({ at, what: 'request', kind, resource, now: random.below(4) === 0 });
    else if (kind === 'reset') {
      const to = random.of(['first', 'last'] as const);
      steps.push({ at, what: 'request', kind, resource, to, forgetful: random.below(2) === 0 });
    } else if (kind === 'hold paused')
      steps.push({ at, what: 'request', kind, resource, forMs: random.in([500, 6_000]) });
    else steps.push({ at, what: 'request', kind, resource });
  }
  return { resources, steps: steps.sort((a, b) => a.at - b.at) };
}

/** Numbers that follow from a seed: a linear congruential generator modulo 2^64 (Knuth's MMIX), its upper half. */
class Random {
  private state: bigint;

  constructor(seed: number) {
    this.state = BigInt(seed);
    this.below(2); // neighbouring seeds begin alike
  }

  below(end: number): number {
    this.state = (this.state * 6364136223846793005n + 1442695040888963407n) & 0xffff_ffff_ffff_ffffn;
    return Number(((this.state >> 32n) * BigInt(end)) >> 32n);
  }

  in([from, to]: Range): number {
    return from + this.below(to - from + 1);
  }

  of<T>(all: readonly T[]): T {
    return all[this.below(all.length)]!;
  }
}

/** Deals its cards in random order, each one once before any comes again. */
class Deck<T> {
  private left: T[] = [];

  constructor(
    private readonly random: Random,
    private readonly cards: readonly T[],
  ) {}

  deal(): T {
    if (this.left.length === 0) this.left = [...this.cards];
    return this.left.splice(this.random.below(this.left.length), 1)[0]!;
  }
}

/** The next card, and how long it lasts this time. */
function dealt<Kind>(random: Random, deck: Deck<Card<Kind>>): { readonly kind: Kind; readonly forMs?: number } {
  const [kind, lasts] = deck.deal();
  return { kind, ...(lasts && { forMs: random.in(lasts) }) };
}
