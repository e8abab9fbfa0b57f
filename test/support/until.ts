/** Asks again and again until the answer is not undefined or false; for what has no event to wait for. */
export async function until<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  withinMs = 40_000,
): Promise<T> {
  const deadline = Date.now() + withinMs;
  let last: unknown;
  for (;;) {
    try {
      const answer = await ask();
      if (answer !== undefined && answer !== false) return answer;
      last = answer;
    } catch (error) {
      last = error; // not there yet
    }
    if (Date.now() > deadline) throw new Error(`waited ${withinMs} ms in vain until ${what}`, { cause: last });
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
