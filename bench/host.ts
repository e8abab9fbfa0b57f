import { createHostWorker, type HostWorker, type HostWorkerOptions } from '../src/host-worker';

/** The host's worker, in this process; another one can take its place for a while. */
export class BenchHost {
  private serving: { readonly worker: HostWorker; readonly running: Promise<void> } | undefined;

  constructor(private readonly options: HostWorkerOptions) {}

  async begin(): Promise<void> {
    const worker = await createHostWorker(this.options);
    const running = worker.run();
    running.catch(() => undefined); // end() tells
    this.serving = { worker, running };
  }

  async end(): Promise<void> {
    this.serving?.worker.shutdown();
    await this.serving?.running;
  }
}
