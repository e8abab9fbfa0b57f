/**
 * A session server that is owned: an example of a program with a control server.
 *
 * It keeps numbered sessions. Each of them ticks every 100 ms and appends a line to <home>/<session>.log. As long as there
 * is one, the server is busy: a lease that nobody renews ends it only at the busy cap. When it ends, it says so in the logs.
 *
 *   POST   /sessions     starts one                 201 {"session":1}
 *   GET    /sessions     all of them                200 {"pid":…,"serverId":"…","sessions":[{"session":1,"ticks":42}]}
 *   DELETE /sessions/N   ends one                   200 {"session":1,"ticks":42}
 *
 * All of it needs the bearer credential of the ownership protocol, which is served below /v1/ by the library; see
 * docs/control-server.md. The host gives the environment; run it below systemd, or set the variables by hand.
 *
 * For tests alone, off unless they are set:
 *
 *   SESSION_SERVER_HANG=1           POST /hang blocks the event loop for ever: nothing but systemd ends the process then
 *   SESSION_SERVER_START_DELAY_MS   it listens so many ms later: it lives, and is not healthy yet
 */
const { appendFileSync } = require('node:fs');
const { join } = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { readOwnedEnvironment, serveOwned } = require('temporal-systemd/control-server');

const { SESSION_SERVER_HANG, SESSION_SERVER_START_DELAY_MS } = process.env;

async function main() {
  const environment = await readOwnedEnvironment();
  const sessions = new Map();
  let last = 0;

  if (SESSION_SERVER_START_DELAY_MS) await sleep(Number(SESSION_SERVER_START_DELAY_MS));
  const { ownership } = await serveOwned({
    environment,
    capabilities: ['sessions'],
    handler,
    onEnd(reason) {
      for (const session of sessions.keys()) endSession(session, `the server ends: ${reason}`);
    },
  });
  console.log(`session server ${ownership.serverId} listens on ${JSON.stringify(environment.endpoint)}`);

  function handler(req, res) {
    const [, session] = /^\/sessions\/([0-9]+)$/.exec(req.url) ?? [];
    if (req.method === 'POST' && req.url === '/sessions') return answer(res, 201, { session: startSession() });
    if (req.method === 'GET' && req.url === '/sessions') return answer(res, 200, listSessions());
    if (req.method === 'DELETE' && sessions.has(Number(session))) {
      return answer(res, 200, endSession(Number(session), 'asked to'));
    }
    if (SESSION_SERVER_HANG && req.method === 'POST' && req.url === '/hang') for (;;);
    answer(res, 404, { error: 'not-found' });
  }

  function startSession() {
    const session = ++last;
    const work = { ticks: 0, idle: ownership.busy(), timer: setInterval(() => log(session, ++work.ticks), 100) };
    sessions.set(session, work);
    log(session, `starts in process ${process.pid}, generation ${environment.generation}`);
    return session;
  }

  function listSessions() {
    const list = Array.from(sessions, ([session, { ticks }]) => ({ session, ticks }));
    return { pid: process.pid, serverId: ownership.serverId, sessions: list };
  }

  function endSession(session, why) {
    const { ticks, idle, timer } = sessions.get(session);
    clearInterval(timer);
    idle();
    sessions.delete(session);
    log(session, `ends, ${why}`);
    return { session, ticks };
  }

  function log(session, line) {
    appendFileSync(join(environment.home, `${session}.log`), `${line}\n`);
  }
}

function answer(res, status, body) {
  res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
