// Each breaks one clause of the proof rule, of the keeper's table, of the starter's order, or of the owner's decisions.
const proof = ['test/unit/host-proof'];

export const mutations = [
  ...inProof('proof: any instance may answer', 'if (readings.instance !== of.instance) {', 'if (false) {'),
  ...inProof('proof: the same boot is a later one', 'now > before', 'now >= before'),
  ...inProof('proof: a boot that is not in the list is an earlier one', 'before >= 0 && now > before', 'now > before'),
  ...inProof(
    'proof: no answer of systemd is no unit',
    "if (readings.units.kind === 'unknown') no(",
    "if (readings.units.kind === 'unknown') void (",
  ),
  ...inProof('proof: units are not looked at', 'if (!isOver(unit)) no(', 'if (!isOver(unit)) void ('),
  ...inProof('proof: a unit with a job is over', " && unit.jobType === ''", ''),
  ...inProof(
    'proof: active (exited) is over',
    "(unit.activeState === 'inactive' ||",
    "(unit.activeState === 'inactive' || unit.subState === 'exited' ||",
  ),
  ...inProof(
    'proof: an unreadable cgroup is empty',
    "if (readings.cgroup.kind === 'unknown') no(",
    "if (readings.cgroup.kind === 'unknown') void (",
  ),
  ...inProof(
    'proof: a populated cgroup is empty',
    "else if (readings.cgroup.kind === 'populated') no(",
    "else if (readings.cgroup.kind === 'populated') void (",
  ),
  ...inProof(
    'proof: a root that could not be verified is the right one',
    "if (readings.root.kind === 'unknown') no(",
    "if (readings.root.kind === 'unknown') void (",
  ),
  ...inProof(
    'proof: any cgroup root will do',
    'readings.root.cgroupId !== readings.root.controlGroupId',
    'readings.root.cgroupId === undefined',
  ),
  ...inProof('proof: two roots without an inode are the same', '!isId(readings.root.cgroupId)', 'false'),

  inKeeper('keeper: paused is not renewed', "      case 'paused':\n", '', 'answers paused'),
  inKeeper('keeper: cancelled is not renewed', "      case 'cancelled':\n", '', 'answers cancelled'),
  inKeeper(
    'keeper: a reset hold is not handed back',
    "        await this.link.fail(hold, 'the activity was reset; holding again');\n",
    '',
    'activity was reset',
  ),
  inKeeper(
    'keeper: a token that is not found stays',
    "case 'not-found':\n        await this.drop(held, hold);",
    "case 'not-found':",
    'token that is not found',
  ),
  inKeeper(
    'keeper: an unknown answer renews',
    "case 'unknown':\n",
    "case 'unknown':\n        await this.renewAfter(held, hold, condition, asked);\n",
    'gives no answer',
  ),
  inKeeper(
    'keeper: the lease counts from after the heartbeat',
    'const deadline = asked + held',
    'const deadline = monotonicNow() + held',
    'before the heartbeat was sent',
  ),
  {
    name: 'renewals: a number that another worker process used is a failure',
    file: 'src/host/renewals.ts',
    find: "error.kind !== 'unit-exists' || before.length > 0",
    replace: 'true',
    tests: ['test/host/hard-hold.test'],
    only: 'two worker processes in turn',
  },
  {
    name: 'renewals: the timers of earlier renewals stay',
    file: 'src/host/renewals.ts',
    find: 'for (const former of others) await stopLeaseUnit(this.host, leaseUnits(placement.unit, former).timer);',
    replace: '',
    tests: ['test/host/hard-hold.test'],
    only: 'two worker processes in turn',
  },

  inStarter(
    'starter: closes after it looked',
    '  await resourceFiles.close(generation - 1);\n\n  const before = await look(host, resource);',
    '  const before = await look(host, resource);\n  await resourceFiles.close(generation - 1);',
    ['test/host/hard-start-order'],
  ),
  inStarter(
    'starter: the floor is not read again',
    'if (floor >= generation) {',
    'if (floor < 0) {',
    ['test/host/start.test'],
    'gives up by itself',
  ),
  inStarter(
    'starter: an unknown outcome is sent again',
    "host.log.warn('start: outcome unknown, looking it up', { resource, unit, error: error.message });",
    'await send(host, service, pair, resourceSliceUnit(slice, resource));',
    ['test/host/start.test'],
    'looks up what came',
  ),
  {
    name: 'starter: the unit asserts nothing',
    file: 'src/host/unit.ts',
    find: "['Asserts', 'a(sbbs)', [['AssertPathExists', false, false, files.openFile]]],",
    replace: '',
    tests: ['test/host/start.test'],
    only: 'systemd itself refuse',
  },
  {
    name: 'starter: any unit of that name is its own',
    file: 'src/host/adoption.ts',
    find: 'isOwn(properties, input.resource, unit.generation, input.owner) &&',
    replace: '',
    tests: ['test/host/start.test'],
    only: 'and nothing else',
  },
  {
    name: 'starter: the floor goes up after the open files went',
    file: 'src/host/generation-files.ts',
    find: `      await this.raise(generation);
      for (const g of await this.generations()) if (g <= generation) await this.generation(g).close();`,
    replace: `      for (const g of await this.generations()) if (g <= generation) await this.generation(g).close();
      await this.raise(generation);`,
    tests: ['test/unit/host-generation-files'],
  },
  {
    name: 'starter: the floor is what was written last',
    file: 'src/host/generation-files.ts',
    find: '    if (generation <= (former ?? 0)) return;\n',
    replace: '',
    tests: ['test/unit/host-parts'],
    only: 'raise the floor only',
  },
  inStarter(
    'starter: a start that was closed is not looked up again',
    'await filesOf(host, placement.prefix, resource).close(placement.generation);\n    unit = ',
    'await filesOf(host, placement.prefix, resource).close(placement.generation);\n    void ',
    ['test/host/hard-outside'],
    'only after it was looked up',
  ),
  {
    name: 'readings: a unit may be in any slice',
    file: 'src/host/readings.ts',
    find: 'cgroup: outside ?? cgroup',
    replace: 'cgroup',
    tests: ['test/host/hard-outside'],
    only: 'drop-in',
  },
  {
    name: 'readings: no cgroup.events is no cgroup',
    file: 'src/cgroup/cgroup.ts',
    find: " && (await isGone(directory))) return { kind: 'gone'",
    replace: ") return { kind: 'gone'",
    tests: ['test/host/hard-outside'],
    only: 'cgroup v1',
  },

  inControl(
    'control: whoever passes the challenge on is believed',
    'src/host/control-recovery.ts',
    "if (!sameEndpoint(identity.endpoint, endpoint)) throw new NotAdopted('other-endpoint', 'foreign-server');",
    '',
    ['test/host/control-recovery'],
    'that its owner has left',
  ),
  inControl(
    'control: a server in another home is adopted',
    'src/host/control-recovery.ts',
    "if (recorded.record.home !== home) throw new NotAdopted('record-other-home');\n    if (identity.home !== home) throw new NotAdopted('other-home');",
    '',
    ['test/host/control-recovery'],
    'a home or capabilities',
  ),
  inControl(
    'control: a start takes over a server that has not proven itself',
    'src/host/starter.ts',
    'const adopted = program.control ? undefined : asStarted(',
    'const adopted = asStarted(',
    ['test/host/control-recovery'],
    'has left',
  ),
  inControl(
    'control: any MAC will do',
    'src/control-server/client.ts',
    'return macs.some((mac) => sameSecret(mac, expected));',
    'return macs.some((mac) => mac.length === expected.length);',
    ['test/unit/control-client'],
  ),
  inControl(
    'control: a credential is sent over another connection than the proven one',
    'src/control-server/exchange.ts',
    'credential !== undefined && !request.reusedSocket',
    'false',
    ['test/unit/control-client'],
  ),
  inControl(
    'control: a lower epoch adopts',
    'src/control-server/ownership.ts',
    'if (!isNewer && !isSame(request, owner)) return',
    'if (owner.epoch === 0 && !isNewer) return',
    ['test/unit/control-server'],
  ),
  inControl(
    'control: systemd’s lease is renewed whatever the server says',
    'src/host/keeper.ts',
    'if (!(await this.renewServer(held, hold))) return false;',
    'await this.renewServer(held, hold);',
    ['test/host/control-lease'],
    'hangs',
  ),

  {
    name: 'abandoned: no answer of Temporal counts as no owner',
    file: 'src/host/abandoned.ts',
    find: "if ((await this.standing(held)) !== 'gone' || held.over || held.hold) return;",
    replace: "if (['open', 'completed'].includes(await this.standing(held)) || held.over || held.hold) return;",
    tests: ['test/host/abandoned'],
  },
  {
    name: 'abandoned: what was released is stopped',
    file: 'src/host/abandoned.ts',
    find: "if ((await this.standing(held)) !== 'gone' || held.over || held.hold) return;",
    replace: "if (!['gone', 'completed'].includes(await this.standing(held)) || held.over || held.hold) return;",
    tests: ['test/host/abandoned'],
  },
  inOwner(
    'owner: still running is a proof',
    'stop-until-proven',
    'const done = failure?.type === FailureType.StillRunning;',
    'const done = failure?.type === FailureType.StillRunning;\n    if (done) data.proof = {} as never;',
  ),
  inOwner(
    'owner: what the hold says is a proof',
    'ownership',
    'this.over = true;',
    'this.over = true;\n        this.owner.data.proof = event.proof;',
  ),
  inOwner(
    'owner: outdated says that nothing runs',
    'startup',
    "data.unresolved = answer.kind === 'outdated';",
    'data.unresolved = false;',
  ),
  {
    name: 'endpoint: a living generation loses its port',
    file: 'src/host/endpoint.ts',
    find: 'if (await this.lives(name)) return false;',
    replace: '',
    tests: ['test/host/endpoints'],
  },
  {
    name: 'endpoint: a port that a stranger has is given away',
    file: 'src/host/endpoint.ts',
    find: 'if (await isFree(host, port)) return port;',
    replace: 'return port;',
    tests: ['test/host/endpoints'],
  },
  inOwner(
    'owner: an unknown start is forgotten',
    'startup',
    '  data.unresolved = true;\n  data.plan = undefined;',
    '  data.plan = undefined;',
  ),
];

function inProof(name, find, replace) {
  return [{ name, file: 'src/host/proof.ts', find, replace, tests: proof }];
}

function inKeeper(name, find, replace, only) {
  return { name, file: 'src/host/keeper.ts', find, replace, tests: ['test/host/lease.test'], only };
}

function inControl(name, file, find, replace, tests, only) {
  return { name, file, find, replace, tests, only };
}

/** The property finds these among the lives of many owners, on a server. */
function inOwner(name, file, find, replace) {
  const tests = ['test/workflow/owner-decisions'];
  return { name, file: `src/workflows/${file}.ts`, find, replace, tests, project: 'temporal' };
}

function inStarter(name, find, replace, tests, only) {
  return { name, file: 'src/host/starter.ts', find, replace, tests, only };
}
