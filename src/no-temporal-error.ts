/** No Temporal server answered. Says nothing about any process; trying again may help. */
export class NoTemporalError extends Error {
  override readonly name = 'NoTemporalError';

  constructor(address: string | undefined, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const remedy = 'is it running, and is this the right address (connection.address, TEMPORAL_ADDRESS)?';
    super(`no Temporal server answers at ${address ?? 'the default address'} (${reason}): ${remedy}`, { cause });
  }
}
