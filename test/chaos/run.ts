import { runCampaign } from './campaign';

/** `npm run chaos -- [--seed N] [--minutes M] [--resources N]`. Exits 1 when something was seen that must never be. */
async function main(): Promise<void> {
  const option = (name: string, fallback: number): number => {
    const at = process.argv.indexOf(`--${name}`);
    const value = at < 0 ? fallback : Number(process.argv[at + 1]);
    if (Number.isFinite(value) && value >= 0) return value;
    throw new Error(`--${name} ${process.argv[at + 1] ?? ''} is not a number`);
  };
  const seed = option('seed', Math.floor(Math.random() * 1_000_000));
  const forMs = option('minutes', 10) * 60_000;
  console.log(`seed ${seed}`);
  const from = performance.now();
  const say = (text: string): void =>
    console.log(`${((performance.now() - from) / 1000).toFixed(1).padStart(7)}  ${text}`);
  const outcome = await runCampaign({ seed, forMs, resources: option('resources', 30), say });
  const { counts, generations, runs, proofs, leases } = outcome;
  console.log(`\n${tableOf(counts)}\n`);
  console.log(
    `${generations} generations, ${runs} runs of owners, ${proofs} proofs, ${leases} leases put to the test; seed ${seed}`,
  );
  if (outcome.violations.length === 0) return console.log('nothing was violated');
  console.log(`\n${outcome.violations.length} VIOLATIONS\n\n${outcome.report}`);
  process.exitCode = 1;
}

function tableOf(counts: ReadonlyMap<string, ReadonlyMap<string, number>>): string {
  const rows = [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
  return rows
    .map(([kind, words]) => `${kind.padEnd(24)} ${[...words].map(([word, n]) => `${n} ${word}`).join(', ')}`)
    .join('\n');
}

main()
  .catch((error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  })
  .finally(() => process.exit());
