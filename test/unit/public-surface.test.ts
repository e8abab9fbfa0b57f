import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as root from '../../src';
import * as client from '../../src/client';
import * as controlServer from '../../src/control-server';
import { ActivityName, PROTOCOL } from '../../src/contract/activities';
import { FailureType } from '../../src/contract/failures';
import { HOST_WORKFLOW } from '../../src/contract/host';
import { hostTaskQueue, hostWorkflowId, ownerWorkflowId } from '../../src/contract/names';
import {
  OWNER_WORKFLOW,
  ownUpdate,
  readyUpdate,
  releaseUpdate,
  requestStopSignal,
  restartUpdate,
  statusQuery,
  stopUpdate,
} from '../../src/contract/owner';

/**
 * What others build on. A change here breaks somebody's code, somebody's open owners, or a host of another version: it
 * takes a version number, not a new expectation.
 */
describe('the public surface', () => {
  it('has these import paths', () => {
    const text = readFileSync(join(__dirname, '../../package.json'), 'utf8');
    const { exports } = JSON.parse(text) as { exports: Record<string, unknown> };
    expect(Object.keys(exports).sort()).toEqual(['.', './client', './control-server', './package.json', './workflows']);
  });

  it('exports from `temporal-systemd`', () => {
    expect(Object.keys(root).sort()).toEqual([
      'ClaimedError',
      'ConfigError',
      'EXIT_CONFIG',
      'SystemdPlugin',
      'loadConfig',
      'resolveConnection',
    ]);
  });

  it('exports from `temporal-systemd/client`', () => {
    expect(Object.keys(client).sort()).toEqual([
      'HostFullError',
      'HostUnreachableError',
      'InvalidResourceError',
      'NoAnswerError',
      'NoEndpointError',
      'NoHostError',
      'NoOwnerError',
      'NotReadyError',
      'OwnUnconfirmedError',
      'OwnerHandle',
      'OwnershipClient',
      'OwnershipConflictError',
      'OwnershipError',
      'ProgramRefusedError',
      'RequestRefusedError',
      'StillRunningError',
    ]);
  });

  it('exports from `temporal-systemd/control-server`', () => {
    expect(Object.keys(controlServer).sort()).toEqual([
      'CONTROL_PROTOCOL',
      'ControlPath',
      'OwnedEnvironmentError',
      'createOwnership',
      'effectiveLease',
      'readOwnedEnvironment',
      'serveOwned',
    ]);
  });

  it('needs nothing but Node and types of the contract for `temporal-systemd/control-server`', () => {
    const folder = join(__dirname, '../../src/control-server');
    for (const name of readdirSync(folder)) {
      const text = readFileSync(join(folder, name), 'utf8').replace(/^ *\/?\*.*$/gm, ''); // comments show imports of others
      const source = text.replace(/^import type .*'\.\.\/contract\/.*$/gm, '');
      for (const [, path] of source.matchAll(/(?:from|import|require\()\s*'([^']+)'/g)) {
        expect(path).toMatch(/^(node:|\.\/)/);
      }
    }
  });

  it('exports from `temporal-systemd/workflows` the workflows by their types, and nothing else', () => {
    const source = readFileSync(join(__dirname, '../../src/workflows/index.ts'), 'utf8');
    const names = [...source.matchAll(/export \{ \w+ as '([^']+)' \}/g)].map(([, name]) => name);
    expect(names).toEqual([OWNER_WORKFLOW, HOST_WORKFLOW]);
    expect(source.match(/^export/gm)).toHaveLength(names.length);
  });

  it('names its workflows, queues, activities, handlers and failure types like this', () => {
    expect({ OWNER_WORKFLOW, HOST_WORKFLOW }).toEqual({ OWNER_WORKFLOW: 'systemd.own', HOST_WORKFLOW: 'systemd.host' });
    expect(ownerWorkflowId('db/a')).toBe('own:db/a');
    expect(hostWorkflowId('h1')).toBe('host:h1');
    expect(hostTaskQueue('q', 'h1')).toBe('q.h1');
    expect(PROTOCOL).toBe(1);
    expect(ActivityName).toEqual({
      startGeneration: 'systemd.startGeneration',
      holdOwnership: 'systemd.holdOwnership',
      stopResource: 'systemd.stopResource',
      readEndpoint: 'systemd.readEndpoint',
      adoptServer: 'systemd.adoptServer',
      reclaimServer: 'systemd.reclaimServer',
      awaitServer: 'systemd.awaitServer',
      serveHost: 'systemd.serveHost',
    });
    const handlers = [ownUpdate, readyUpdate, stopUpdate, restartUpdate, releaseUpdate, requestStopSignal, statusQuery];
    expect(handlers.map(({ type, name }) => `${type} ${name}`)).toEqual([
      'update own',
      'update ready',
      'update stop',
      'update restart',
      'update release',
      'signal requestStop',
      'query status',
    ]);
    expect(Object.values(FailureType).sort()).toEqual([
      'Busy',
      'HoldAgain',
      'HostFull',
      'InvalidRequest',
      'NotThisOwner',
      'NothingStarted',
      'ProgramRefused',
      'StillRunning',
      'Unknown',
      'WrongInstance',
    ]);
  });
});

describe('SystemdPlugin', () => {
  it('opens nothing when it is made: it may be named at bundling, on a machine without systemd and Temporal', () => {
    const untouchable = new Proxy({} as root.Config, {
      get: (_config, key) => {
        throw new Error(`the constructor read config.${String(key)}`);
      },
    });
    const handles = process.getActiveResourcesInfo().sort();
    expect(new root.SystemdPlugin(untouchable).name).toBe('temporal-systemd.SystemdPlugin');
    expect(process.getActiveResourcesInfo().sort()).toEqual(handles);
  });

  it('leaves the options of the worker as they are: no workflows, no data converter, no activities of its own', () => {
    const options = { taskQueue: 'q', workflowsPath: 'mine', activities: { mine: async () => undefined } };
    const configured = new root.SystemdPlugin({ run: ['workflows'] } as unknown as root.Config).configureWorker(
      options,
    );
    expect(configured).toMatchObject(options);
    expect(Object.keys(configured.activities ?? {})).toEqual(['mine']);
    expect(configured.dataConverter).toBeUndefined();
  });
});
