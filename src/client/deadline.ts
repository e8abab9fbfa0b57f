import { isGrpcServiceError, type Client } from '@temporalio/client';

/** Our timer is the first to be late, so that every caller sees the same error. */
const GRACE_MS = 500;

/** gRPC FAILED_PRECONDITION. */
const NOT_TAKEN = 9;
const TAKE_AGAIN_MS = 50;

/**
 * Races a call against a timer of its own. The SDK's deadlines are not enough: one on a native connection was seen to be
 * ignored, and a retried RESOURCE_EXHAUSTED to overrun it threefold. The call itself ends a little later, unheard: without
 * a deadline of its own, the SDK would ask again and again for as long as the process lives.
 */
export async function within<T>(client: Client, ms: number, call: () => Promise<T>, late: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(late()), ms);
  });
  const calling = client.withDeadline(Date.now() + ms + GRACE_MS, () => untilTaken(call));
  calling.catch(() => undefined); // it may fail after the timer has won
  try {
    return await Promise.race([calling, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Sends a request again that the server says it has not taken: the run has no workflow task yet, or lost the one that was to
 * take it, as happens around each continue-as-new. The deadline ends this.
 */
async function untilTaken<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      const cause = error instanceof Error ? error.cause : undefined;
      if (!isGrpcServiceError(cause) || Number(cause.code) !== NOT_TAKEN) throw error;
      await new Promise((resolve) => setTimeout(resolve, TAKE_AGAIN_MS));
    }
  }
}
