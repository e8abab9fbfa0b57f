import type { Program } from '../../src/config';
import type { Placement } from '../../src/contract/facts';
import type { HostSuite, SuiteHost } from './host-suite';
import { holdInput } from './owned-host';

/** Those on a host whom nothing that is done to another resource may touch (G11). */
export interface Neighbours {
  /** Rejects unless all of them are as they were, and their leases go on. Ends them. */
  areUntouched(): Promise<void>;
}

/** Who lives beside the resource: of the same prefix, or of others alone where the whole prefix is meddled with. */
export interface NeighboursOptions {
  /** One that runs until it is stopped. */
  readonly program: Program;
  readonly samePrefix?: boolean;
}

/**
 * Beside a resource: another one of the same worker; the same one of another namespace's worker, with another prefix; and
 * a stranger's unit with nearly the same name.
 */
export async function openNeighbours(
  suite: HostSuite,
  worker: SuiteHost,
  resource: string,
  { program, samePrefix = true }: NeighboursOptions,
): Promise<Neighbours> {
  const { machine } = suite;
  const other = await suite.worker([program], {
    id: 'other-host',
    namespace: 'other',
    unitPrefix: 'other',
    stateDirectory: `${machine.stateDirectory}-other`,
  });
  const owned: { readonly worker: SuiteHost; readonly name: string; readonly placement: Placement }[] = [];
  for (const [of, name] of [...(samePrefix ? [[worker, suite.resource()] as const] : []), [other, resource] as const]) {
    const placement = await of.start(name, program.name);
    await of.host.hold(holdInput(name, placement), 'neighbour', 1);
    owned.push({ worker: of, name, placement });
  }
  const [first] = owned;
  const stranger = first!.placement.unit.replace('-', '2-');
  await machine.run(['systemd-run', `--unit=${stranger}`, 'sleep', '9999']);
  const units = [...owned.map(({ placement }) => placement.unit), stranger];
  const show = (): Promise<string[]> =>
    Promise.all(
      units.map((unit) =>
        machine.systemctl('show', '--property=MainPID,InvocationID,ActiveState,FreezerState,DropInPaths', unit),
      ),
    );
  const before = await show();
  return {
    areUntouched: async () => {
      await Promise.all(owned.map(({ worker: { link } }) => link.heardFrom('neighbour')));
      expect(await show()).toEqual(before);
      for (const {
        worker: { link },
      } of owned)
        expect(link.events.filter(({ token }) => token === 'neighbour')).toEqual([]);
      await machine.systemctl('stop', stranger);
      await Promise.all(owned.map(({ worker: of, name, placement }) => of.stopUntilProven(name, placement)));
    },
  };
}
