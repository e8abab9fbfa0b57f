import { checkParameters, expand } from '../../src/config';
import { load, loadProgram, problemsOf, programText } from './config-text';

describe('templates', () => {
  it('become text once: what a value contains is not expanded again', () => {
    expect(expand('-p${port} ${resource}', { port: '${resource}', resource: 'db/x' })).toBe('-p${resource} db/x');
  });

  it.each(['$', '$$', '$HOME', '$(id)', '${', '$ {x}', '$`', "$'", '$&'])('leave %s as it is', (text) => {
    expect(expand(`a${text}b \${x}`, { x: `1${text}2` })).toBe(`a${text}b 1${text}2`);
    expect(loadProgram(`exec: [/bin/echo, ${JSON.stringify(text)}]`).exec[1]).toBe(text);
  });

  it('find no value in what every object inherits', () => {
    expect(() => expand('${constructor}', {})).toThrow('constructor');
    expect(problemsOf(programText("exec: [/bin/echo, '${constructor}']"))[0]?.path).toBe('programs.p.exec[1]');
  });

  it('may name the resource in paths, and nothing else', () => {
    const program = loadProgram(
      "workingDirectory: '/srv/${resource}'",
      "environmentFiles: ['/etc/x/${resource}.env']",
      "credentials: { key: '/etc/keys/${resource}' }",
      "hardening: { ReadWritePaths: ['-/srv/${resource}'] }",
    );
    expect(expand(program.credentials.key!, { resource: 'db/tenant-42' })).toBe('/etc/keys/db/tenant-42');
  });
});

describe('a parameter in the text of a shell (G10)', () => {
  const parameters = "parameters: { x: '.*' }";

  it.each([
    "exec: [/bin/sh, -c, 'echo ${x}']",
    "exec: [/bin/sh, -c, 'echo \"$1\"', '${x}', '${x} ${x}', '-c', 'echo']",
    "exec: [/usr/bin/bash, -e, -c, 'echo ${x}']",
    "exec: [/bin/dash, -ec, 'echo ${x}']",
    "exec: [/bin/bash, -c, -e, 'echo ${x}']",
    "exec: [/usr/bin/env, A=b, sh, -c, 'echo ${x}']",
    "exec: [/bin/busybox, sh, -c, 'echo ${x}']",
  ])('%s is refused unless it stands behind the script', (exec) => {
    const problems = problemsOf(
      programText(exec.includes('"$1"') ? "exec: [/bin/sh, '${x}', -c, 'echo ${x}']" : exec, parameters),
    );
    expect(problems).toEqual([expect.objectContaining({ message: expect.stringContaining('read as code') })]);
  });

  it('may be handed to the script as its argument', () => {
    expect(loadProgram("exec: [/bin/sh, -c, 'exec sleep \"$1\"', sh, '${x}']", parameters).exec).toHaveLength(5);
  });

  it('does not keep the resource out, which holds nothing that a shell would read', () => {
    expect(loadProgram("exec: [/bin/sh, -c, 'echo ${resource}']").exec).toHaveLength(3);
  });
});

describe('the parameters of a start', () => {
  const program = loadProgram(
    "exec: [/bin/echo, '${port}', '${mode}']",
    "parameters: { port: '5[0-9]{3}', mode: 'a|b|[^x]*' }",
  );
  const check = (parameters: unknown): unknown =>
    checkParameters(program, parameters).map((p) => [p.parameter, p.message]);

  it('are accepted when each one matches its pattern whole', () => {
    expect(check({ port: '5432', mode: 'a' })).toEqual([]);
    expect(check({ port: '5432', mode: '' })).toEqual([]);
  });

  it.each([['55432'], ['5432 '], ['5432\n'], ['x5432'], ['']])('are refused when %j only holds a match', (port) => {
    expect(check({ port, mode: 'a' })).toEqual([['port', expect.any(String)]]);
  });

  it.each([['\0'], ['a\nb'], ['\u0085'], ['\u001b[2J'], ['\ud800']])(
    'never hold %j, whatever the pattern lets through',
    (mode) => {
      expect(check({ port: '5432', mode })).toEqual([['mode', expect.stringContaining('control character')]]);
    },
  );

  it('are refused when one is missing, too many, no text, or longer than 1,024', () => {
    expect(check({ mode: 'y'.repeat(1025), user: 'root' })).toEqual([
      ['port', 'is missing'],
      ['mode', expect.stringContaining('longer than 1024')],
      ['user', expect.stringContaining('no parameter')],
    ]);
    expect(check({ port: 5432, mode: ['a'] })).toEqual([
      ['port', 'is not text'],
      ['mode', 'is not text'],
    ]);
  });

  it.each([[null], [undefined], ['x'], [[]], [7]])('are refused when they are %j', (parameters) => {
    expect(check(parameters)).toEqual([['(all)', 'are no object']]);
  });

  it('are not found in what every object inherits', () => {
    const odd = loadProgram("exec: [/bin/echo, '${toString}']", "parameters: { toString: '.*' }");
    expect(checkParameters(odd, {})).toEqual([
      expect.objectContaining({ parameter: 'toString', message: 'is missing' }),
    ]);
    expect(checkParameters(program, JSON.parse('{"port":"5432","mode":"a","__proto__":"x"}'))).toHaveLength(1);
  });
});

it.each(['constructor', '__proto__', 'toString'])('a workflow that names the program %s finds none', (name) => {
  expect(load(programText()).programs[name]).toBeUndefined();
});
