// The oracle's process: says again and again, in a file, that it lives. What the file says is compared with what should be
// (oracle.ts); nothing of this project is loaded here, so that both can't be wrong together.
//
//   node oracle-payload.js TRACE RESOURCE MANNER
//
// A line is `resource generation pid boot-id microseconds event`: at the start, every 20 ms, and at the end where there is
// time for one. The microseconds are CLOCK_MONOTONIC, which all hosts of one machine share. Each line is one write to a file
// opened for appending, so lines of several processes have an order, and the file's order is that of the kernel.
//
// One Node process, because a shell has neither that clock nor a way to wait 20 ms without a fork, and thirty shells that
// fork fifty times a second would be all that a small machine does.
const { spawn } = require('node:child_process');
const { openSync, readFileSync, writeSync } = require('node:fs');

/** The descriptor of the resource's lock, taken by the shell that this was executed by (oracle.ts). */
const LOCK = 9;

const [trace, resource, manner] = process.argv.slice(2);
const generation = process.env.OWNED_GENERATION;
const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
const file = openSync(trace, 'a');

// A process that was killed amid a write has left half a line: the first one begins a line of its own.
say('start', '\n');
if (process.env.ORACLE_BESIDE) say('beside');
setInterval(() => say('tick'), 20);

/** Some seconds that differ from one generation to the next. */
const aWhileMs = 2000 + (Number(generation) % 5) * 1000;

switch (manner) {
  case 'steady':
    process.on('SIGTERM', () => leave(0));
    break;
  case 'stubborn': // SIGKILL alone ends it
    process.on('SIGTERM', () => say('deaf'));
    break;
  case 'brief': // ends by itself, well or not
    process.on('SIGTERM', () => leave(0));
    setTimeout(() => leave(Number(generation) % 2), aWhileMs);
    break;
  case 'family': // ends by itself, and leaves a child behind
    spawn(process.execPath, [__filename, trace, resource, 'stubborn'], {
      detached: true,
      stdio: ['ignore', 'ignore', 'ignore', LOCK], // Node hands down no descriptor that is not named
    }).unref();
    process.on('SIGTERM', () => leave(0));
    setTimeout(() => leave(0), aWhileMs);
    break;
}

function say(event, before = '') {
  const now = process.hrtime.bigint() / 1000n;
  writeSync(file, `${before}${resource} ${generation} ${process.pid} ${bootId} ${now} ${event}\n`);
}

function leave(code) {
  say('end');
  process.exit(code);
}
