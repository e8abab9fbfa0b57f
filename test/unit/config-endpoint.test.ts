import { load, loadProgram, problemsOf, programText } from './config-text';

/** What is said of a program with these lines: the key's place below the program, and the words. */
function complaints(...lines: readonly string[]): readonly string[] {
  return problemsOf(programText(...lines)).map(({ path, message }) => `${path.replace('programs.p.', '')} ${message}`);
}

describe('an endpoint section', () => {
  it('is a port, a range of ports, or the socket of a resource', () => {
    expect(loadProgram()).not.toHaveProperty('endpoint');
    expect(loadProgram('endpoint: { port: 5400 }').endpoint).toEqual({ host: '127.0.0.1', ports: [5400, 5400] });
    expect(loadProgram('endpoint: { port: 5400-5499, host: "::" }').endpoint).toEqual({
      host: '::',
      ports: [5400, 5499],
    });
    expect(loadProgram("endpoint: { socket: '/run/db/${resource}.sock' }").endpoint).toEqual({
      socket: '/run/db/${resource}.sock',
    });
  });

  it.each([
    [['endpoint: {}'], 'endpoint.port is missing, and so is socket'],
    [['endpoint: { port: 0 }'], 'endpoint.port is not between 1 and 65535'],
    [['endpoint: { port: 5499-5400 }'], 'endpoint.port ends before it begins'],
    [['endpoint: { port: http }'], 'endpoint.port is neither a port nor a range of ports'],
    [['endpoint: { port: 5400, host: localhost }'], 'endpoint.host is no IP address'],
    [['endpoint: { socket: /run/db.sock }'], 'endpoint.socket is the same for every resource'],
    [["endpoint: { socket: '${resource}.sock' }"], 'endpoint.socket is not an absolute path'],
    [["endpoint: { port: 1, socket: '/run/${resource}' }"], 'endpoint.socket is there besides port'],
    [["endpoint: { host: '::1', socket: '/run/${resource}' }"], 'endpoint.host is for a port, and this is a socket'],
    [['endpoint: { port: 1, name: x }'], 'endpoint.name is not known here'],
    [
      ['endpoint: { port: 1 }', 'control: { port: 2, home: /srv }'],
      'endpoint is there besides control, which says where the server listens',
    ],
  ])('that can’t be used is refused with its place: %s', (lines, complaint) => {
    expect(complaints(...lines)).toEqual([expect.stringContaining(complaint)]);
  });

  it('is asked for in arguments by its parts, which no parameter can be called', () => {
    const exec = "exec: [/bin/x, '${endpoint.host}:${endpoint.port}', '${port}']";
    const text = programText('endpoint: { port: 5400 }', exec, "parameters: { port: '[0-9]+' }");
    expect(load(text).programs.p).toMatchObject({ endpoint: { ports: [5400, 5400] } });
    expect(complaints("exec: [/bin/x, '${endpoint.port}']")).toEqual([
      expect.stringContaining('asks for an endpoint, which the program does not declare'),
    ]);
    const parts = "exec: [/bin/x, '${endpoint.port}', '${endpoint.toString}']";
    const misses = expect.stringContaining('asks for a part that this endpoint does not have') as string;
    expect(complaints("endpoint: { socket: '/run/${resource}' }", parts)).toEqual([misses, misses]);
  });
});
