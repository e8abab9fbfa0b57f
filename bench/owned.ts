import type { OwnershipClient } from '../src/client';
import { Samples } from './samples';

/** Ours: from the call to a running process, and from the call to the proof. */
export class Owned {
  readonly start = new Samples('(c) owned: own() to running');
  readonly stop = new Samples('(c) owned: stop() to proof');

  constructor(
    private readonly client: OwnershipClient,
    private readonly host: string,
  ) {}

  /** Owns one resource and stops it. */
  async round(resource: string): Promise<void> {
    const handle = await this.start.timeAtRest(async () => {
      const owned = await this.client.own({ resource, program: 'sleeper', host: this.host });
      await owned.handle.ready();
      return owned.handle;
    });
    await this.stop.timeAtRest(() => handle.stop({ reason: 'bench' }));
  }
}
