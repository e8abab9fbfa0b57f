import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { collectOutput } from '../support/command';
import { openTemporalServer, type TemporalServer } from '../support/temporal-server';

const script = join(__dirname, '../../scripts/demo.mjs');

describe('the demo', () => {
  let server: TemporalServer;

  beforeAll(async () => {
    server = await openTemporalServer();
  });
  afterAll(() => server?.stop());

  function demo(...args: string[]): ChildProcess {
    return spawn(process.execPath, [script, ...args], { env: { ...process.env, ...server.env } });
  }

  async function statusOf(workflowId: string): Promise<string> {
    return (await server.client.workflow.getHandle(workflowId).describe()).status.name;
  }

  it('owns a real process, stops it until it is proven dead, and shows the proof and the exit report (G3)', async () => {
    const { code, stdout, stderr } = await collectOutput(demo());
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/owner {2}running +started \S*demo_2fgreeter-g\d+\.service/);
    expect(stdout).toContain('Active: active (running)');
    for (const row of [
      /end +stopped/,
      /exit report +exit 0 /,
      /proof by +empty/,
      /cgroup said +(ENOENT|ENODEV|populated 0)/,
    ]) {
      expect(stdout).toMatch(row);
    }
    expect(stdout.trimEnd()).toMatch(/\nnpm run demo -- control-server .*$/);
    expect(await statusOf('own:demo/greeter')).toBe('COMPLETED');
    expect(await statusOf(`host:${/on host (demo-\w+)/.exec(stdout)![1]}`)).toBe('TERMINATED'); // its claim is given back
  });

  it('control-server: kills the owner and the worker, the work goes on, and the next ones adopt the same server (G6, G9)', async () => {
    const { code, stdout, stderr } = await collectOutput(demo('control-server'));
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const [, killed = ''] = stdout.split('worker killed, exit code 137');
    const [unowned = '', adopted = ''] = killed.split('worker serves the host');
    expect(unowned).toMatch(/session 1: tick \d+0/);
    for (const row of [
      /found +adopted \(adopted\) at 127\.0\.0\.1:77\d\d, contacted /,
      /server +process \d+: the same; id: the same/,
      /credential +changed; the former one is answered 401/,
      /ticks +1 to \d+, 0 missing; /,
      /end +stopped/,
      /proof by +empty/,
    ]) {
      expect(adopted).toMatch(row);
    }
    expect(stdout).not.toMatch(/(?<![\w-])[\w-]{43}(?![\w-])/); // the form of a credential
    expect(await statusOf('own:demo/sessions')).toBe('COMPLETED');
    expect(await statusOf(`host:${/on host (demo-\w+)/.exec(stdout)![1]}`)).toBe('TERMINATED');
  });

  it('refuses a name that it does not have, and says the ones that it has', async () => {
    const { code, stderr } = await collectOutput(demo('greeter'));
    expect(code).toBe(1);
    expect(stderr).toContain('npm run demo -- control-server');
  });

  it('--keep owns once more and stays until Ctrl-C, then leaves nothing open', async () => {
    const running = demo('--keep');
    const ended = collectOutput(running);
    let printed = '';
    while (!printed.includes('Owned once more')) {
      const [text] = (await Promise.race([once(running.stdout!, 'data'), ended])) as [string];
      if (running.exitCode !== null) throw new Error(`ended with ${running.exitCode}: ${printed}`);
      printed += text;
    }
    expect(await statusOf('own:demo/greeter')).toBe('RUNNING');
    running.kill('SIGINT');
    expect((await ended).code).toBe(130);
    expect(await statusOf('own:demo/greeter')).toBe('TERMINATED');
  });
});
