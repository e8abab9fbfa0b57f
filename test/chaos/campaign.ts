import { setTimeout as delay } from 'node:timers/promises';
import { ownerWorkflowId } from '../../src/contract/names';
import { StillRunningError } from '../../src/client';
import { Turns } from '../../src/host/turns';
import { traceText, type Trace, type Violation } from '../support/oracle';
import { checkHost, checkTraces, readTraces } from './checks';
import { cause, heal } from './faults';
import { meddle, sweepAfterHands } from './hands';
import { Moments } from './moments';
import { readOwners } from './owners';
import { planOf, type Plan, type PlanOptions, type Step } from './plan';
import { foreseen, Requests } from './requests';
import { openChaosScene, type ChaosScene } from './scene';

/** What came of a campaign. */
export interface Outcome {
  /** Of each kind of fault and request: how many were done, and what the others came to. */
  readonly counts: ReadonlyMap<string, ReadonlyMap<string, number>>;
  readonly generations: number;
  /** Runs of owners, and proofs that were given. */
  readonly runs: number;
  readonly proofs: number;
  /** How often nobody could renew the lease of a process for longer than it had. */
  readonly leases: number;
  readonly violations: readonly Violation[];
  /** For people: each violation with its evidence. */
  readonly report: string;
}

export interface CampaignOptions extends PlanOptions {
  /** Told what goes on. */
  readonly say?: (text: string) => void;
}

/** After its last fault everything is healed; so long it may take until every owner has ended, and nothing is left. */
const END_MS = 180_000;

/** Breaks a host in every way that the plan says, and finds out whether anything was seen that must never be. */
export async function runCampaign(options: CampaignOptions): Promise<Outcome> {
  const { say = () => undefined } = options;
  const plan = planOf(options);
  const names = plan.resources.map(({ name }) => name);
  const scene = await openChaosScene();
  try {
    const moments = new Moments();
    const requests = new Requests(scene, new Map(plan.resources.map(({ name, manner }) => [name, manner])));
    const campaign = new Campaign(scene, moments, requests, plan.resources);
    say(`${plan.steps.length} steps in ${options.forMs / 1000} s`);
    await campaign.run(plan.steps, say);
    say('healing');
    await heal(scene);
    say('ending every owner');
    const until = Date.now() + END_MS;
    await Promise.all(names.map((name) => campaign.endOwner(name, until)));
    say('checking');
    await sweepAfterHands(scene, moments);
    const left = await checkHost(scene, Math.max(30_000, until - Date.now()));
    const traces = await readTraces(scene, names);
    const { runs, proofs, violations: ofOwners } = await readOwners(scene);
    const { tested: leases, violations: ofTraces } = checkTraces(traces, { scene, moments, requests, proofs });
    const violations = [...campaign.violations, ...ofTraces, ...ofOwners, ...left];
    const generations = [...traces.values()].reduce(
      (sum, { lines }) => sum + new Set(lines.map(({ generation }) => generation)).size,
      0,
    );
    const { counts } = campaign;
    for (const end of scene.worker.ends) say(`the worker ended by itself: ${end}`);
    const texts = await report(scene, moments, violations, traces);
    return { counts, generations, runs, proofs: proofs.length, leases, violations, report: texts };
  } finally {
    await scene.end();
  }
}

class Campaign {
  readonly counts = new Map<string, Map<string, number>>();
  readonly violations: Violation[] = [];
  private readonly lanes = new Turns();

  constructor(
    private readonly scene: ChaosScene,
    private readonly moments: Moments,
    private readonly requests: Requests,
    private readonly resources: Plan['resources'],
  ) {}

  /** Does each step at its time, or as soon as its lane is free. Resolves once all are done. */
  async run(steps: readonly Step[], say: (text: string) => void): Promise<void> {
    const from = Date.now();
    const doing: Promise<void>[] = [];
    for (const step of steps) {
      await delay(Math.max(0, from + step.at - Date.now()));
      if (step.what === 'fault') say(`${step.at} ${step.kind} ${'forMs' in step ? step.forMs : ''}`);
      doing.push(this.do(step));
    }
    await Promise.all(doing);
  }

  /** Asks an owner to stop, until it has ended. */
  async endOwner(resource: string, until: number): Promise<void> {
    const workflow = this.scene.server.client.workflow.getHandle(ownerWorkflowId(resource));
    let last: unknown;
    while (Date.now() < until) {
      try {
        if ((await workflow.describe()).status.name !== 'RUNNING') return;
        await this.scene.client.handle(resource).stop({ reason: 'the campaign is over', timeout: '20 s' });
      } catch (error) {
        last = error;
        if (foreseen(error) === 'WorkflowNotFoundError') return; // never owned
        if (!(error instanceof StillRunningError)) await delay(1_000);
      }
    }
    const said = last instanceof Error ? last.message : String(last);
    this.violations.push({ resource, what: 'its owner does not end', evidence: [said] });
  }

  private async do(step: Step): Promise<void> {
    try {
      this.count(step, await this.perform(step));
    } catch (error) {
      const word = foreseen(error);
      this.count(step, word ?? 'failed');
      if (word !== undefined) return;
      const evidence = [error instanceof Error ? (error.stack ?? error.message) : String(error)];
      const resource = 'resource' in step ? step.resource : '';
      this.violations.push({ resource, what: `"${step.kind}" failed in a way that nobody has foreseen`, evidence });
    }
  }

  /** Returns in a word what came of it. */
  private async perform(step: Step): Promise<string> {
    switch (step.what) {
      case 'request':
        await this.requests.make(step);
        return 'done';
      case 'hands': {
        const undo = await this.alone('hands', () => meddle(step, this.resources, this.scene, this.moments));
        if (!undo) return 'no unit';
        // Not in line while it lasts: other hands are laid on the same resource meanwhile, and on others.
        if ('forMs' in step) await delay(step.forMs);
        await this.alone('hands', undo);
        return 'done';
      }
      case 'fault': {
        const run = (): Promise<unknown> => cause(step, this.scene, this.moments);
        // A host that boots can't be broken in other ways meanwhile.
        if (step.kind === 'reboot') {
          await this.alone('worker', () => this.alone('systemd', () => this.alone('hands', run)));
        } else await this.alone(step.lane, run);
        return 'done';
      }
    }
  }

  private alone<T>(lane: string, run: () => Promise<T>): Promise<T> {
    return this.lanes.take(lane, run);
  }

  private count({ kind }: Step, word: string): void {
    const of = this.counts.get(kind) ?? new Map<string, number>();
    this.counts.set(kind, of.set(word, (of.get(word) ?? 0) + 1));
  }
}

/** So many violations are shown with all that is known of their resource. */
const SHOWN = 5;

async function report(
  scene: ChaosScene,
  { hands }: Moments,
  violations: readonly Violation[],
  traces: ReadonlyMap<string, Trace>,
): Promise<string> {
  const texts: string[] = [];
  for (const { resource, what, evidence } of violations.slice(0, SHOWN)) {
    const status = await scene.client
      .handle(resource || 'none')
      .status()
      .then((found) => JSON.stringify(found))
      .catch((error: unknown) => String(error));
    const about = scene.worker.lines.filter((line) => JSON.stringify(line).includes(`"${resource}"`));
    texts.push(
      [
        `${resource}: ${what}`,
        ...evidence.map((line) => `  ${line}`),
        `  its owner: ${status}`,
        '  its starts and ends:',
        ...(traces.get(resource)?.lines ?? [])
          .filter(({ event }) => event !== 'tick')
          .slice(-20)
          .map((line) => `    ${traceText(line)}`),
        '  other hands:',
        ...hands.filter((one) => one.resource === resource).map(({ at, what }) => `    µs ${at} ${what}`),
        '  the worker said:',
        ...about.slice(-30).map((line) => `    ${JSON.stringify(line)}`),
      ].join('\n'),
    );
  }
  if (violations.length > SHOWN) {
    texts.push(`and ${violations.length - SHOWN} more:`);
    texts.push(...violations.slice(SHOWN, 50).map(({ resource, what }) => `  ${resource}: ${what}`));
  }
  return texts.join('\n\n');
}
