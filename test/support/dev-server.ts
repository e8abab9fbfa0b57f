import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { collectOutput, holdOpen } from './command';
import { resolveTemporalCli } from './temporal-cli';
import type { CommandResult } from './test-host';

export interface DevServerOptions {
  /** Serve the Temporal UI as well; default false. */
  readonly ui?: boolean;
  /** Port of the server; a free one where absent. The UI's is 1000 higher. */
  readonly port?: number;
  /** SQLite file that keeps its state; in memory where absent. */
  readonly dbFilename?: string;
  /** Told about a download or a build of the CLI. */
  readonly report?: (progress: string) => void;
}

/** A `temporal server start-dev` that can go away and come back on the same port. It never outlives this process. */
export class DevServer {
  private process?: ChildProcess;
  private ended?: Promise<CommandResult>;

  private constructor(
    private readonly cli: string,
    private readonly port: number,
    private readonly options: DevServerOptions,
  ) {}

  /** Finds the CLI and a port and starts a server; resolves once it serves. */
  static async open(options: DevServerOptions = {}): Promise<DevServer> {
    const cli = await resolveTemporalCli(options.report);
    const server = new DevServer(cli, options.port ?? (await freePort(options.ui ? 1000 : 0)), options);
    await server.start();
    return server;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  get uiUrl(): string | undefined {
    return this.options.ui ? `http://127.0.0.1:${this.port + 1000}` : undefined;
  }

  /** Starts it (again); resolves once it serves. */
  async start(): Promise<void> {
    if (this.process) throw new Error(`The Temporal server on ${this.address} runs already: end it first.`);
    const { ui, dbFilename } = this.options;
    const command = [
      // The kernel ends it when this process dies, however that happens.
      ...(process.platform === 'linux' ? ['setpriv', '--pdeathsig', 'KILL'] : []),
      ...[this.cli, 'server', 'start-dev', '--ip', '127.0.0.1', '--port', `${this.port}`, '--log-level', 'error'],
      ...(ui ? ['--ui-port', `${this.port + 1000}`] : ['--headless']),
      ...(dbFilename ? ['--db-filename', dbFilename] : []),
      // Its default of 20 a second would make hundreds of owners wait for their first task.
      ...['--dynamic-config-value', 'history.transferProcessorMaxPollRPS=1000'],
      ...ownedAttributes.flatMap((name) => ['--search-attribute', `${name}=Keyword`]),
    ];
    const [file = '', ...args] = command;
    const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.process = child;
    this.ended = collectOutput(child);
    await this.untilServing(child, this.ended);
    holdOpen(child, false);
  }

  /** Ends the server by its process id and waits until it is gone. Its address stays its own for the next `start`. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const { process: child, ended } = this;
    if (!child) return;
    holdOpen(child, true);
    child.kill(signal);
    await ended;
    this.process = undefined;
  }

  /** The server prints its address once its frontend serves. */
  private untilServing(child: ChildProcess, ended: Promise<CommandResult>): Promise<void> {
    return new Promise((resolve, reject) => {
      let printed = '';
      child.stdout?.on('data', (text: string) => {
        printed += text;
        if (/^Server:/m.test(printed)) resolve();
      });
      ended.then(({ code, stdout, stderr }) => {
        this.process = undefined;
        const said = (stderr.trim() || stdout.trim()).split('\n').slice(-5).join('\n');
        reject(new Error(`\`${this.cli} server start-dev\` on ${this.address} ended with exit code ${code}: ${said}`));
      }, reject);
    });
  }
}

/** The search attributes that owners may carry, registered so that tests can ask for them. */
const ownedAttributes = ['OwnedResource', 'OwnedHost', 'OwnedState', 'OwnedProgram'];

/**
 * A port that can be listened on, and with it the one `beside` higher. Below the range from which the kernel takes ports
 * for outgoing connections, so that none takes it before the server does or while the server is away.
 */
async function freePort(beside: number): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    if ((await canListen(port)) && (beside === 0 || (await canListen(port + beside)))) return port;
  }
}

async function canListen(port: number): Promise<boolean> {
  const listener = createServer();
  try {
    await once(listener.listen(port, '127.0.0.1'), 'listening');
    return true;
  } catch {
    return false; // in use: the caller tries another
  } finally {
    if (listener.listening) await new Promise((resolve) => listener.close(resolve));
  }
}
