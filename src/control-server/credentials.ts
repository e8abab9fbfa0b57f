import { randomBytes } from 'node:crypto';
import { sameSecret } from './protocol';

/**
 * The credentials of a server: the established one, and perhaps a pending one that was answered and not used yet.
 *
 * Both are valid until the pending one has been used. So neither an answer that got lost nor a crash before it was
 * written down locks its owner out, and a former owner is out as soon as the new one has spoken.
 */
export class Credentials {
  #established: string;
  #pending: string | undefined;

  constructor(established: string) {
    this.#established = established;
  }

  /** What is valid now, newest first. */
  get valid(): readonly string[] {
    return this.#pending === undefined ? [this.#established] : [this.#pending, this.#established];
  }

  /** Whether it is a valid one; changes nothing. */
  accepts(credential: string): boolean {
    return this.valid.some((valid) => sameSecret(valid, credential));
  }

  /** Whether it is a valid one. The pending one becomes the established one by this, and the former is out. */
  use(credential: string): boolean {
    if (this.#pending !== undefined && sameSecret(this.#pending, credential)) {
      this.#established = this.#pending;
      this.#pending = undefined;
      return true;
    }
    return sameSecret(this.#established, credential);
  }

  /** Makes the next pending one. A former one that was never used is out. */
  rotate(): string {
    return (this.#pending = randomBytes(32).toString('base64url'));
  }
}
