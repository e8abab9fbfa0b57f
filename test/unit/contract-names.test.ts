import fc from 'fast-check';
import {
  checkResource,
  escapeResource,
  generationUnit,
  InvalidResourceError,
  leaseUnits,
  MAX_ESCAPED_RESOURCE,
  ownerWorkflowId,
  parseUnit,
  resourceOfWorkflowId,
  resourceSlice,
  unescapeResource,
} from '../../src/contract/names';

const characters = [...'abcXYZ019._-'];
const segment = fc
  .string({ unit: fc.constantFrom(...characters), minLength: 1, maxLength: 12 })
  .filter((text) => text !== '.' && text !== '..');
const resource = fc
  .array(segment, { minLength: 1, maxLength: 4 })
  .map((parts) => parts.join('/'))
  .filter((text) => escapeResource(text).length <= MAX_ESCAPED_RESOURCE);
const prefix = fc.stringMatching(/^[a-z][a-z0-9]{0,15}$/);
const generation = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER });

describe('names', () => {
  it('of units tell resources apart and lead back to them (G11)', () => {
    fc.assert(
      fc.property(resource, resource, (a, b) => {
        expect(unescapeResource(escapeResource(a))).toBe(a);
        expect(escapeResource(a)).toMatch(/^([A-Za-z0-9]|_[0-9a-f]{2})+$/);
        expect(escapeResource(a) === escapeResource(b)).toBe(a === b);
      }),
    );
  });

  it('of a resource never nest its slice in another one’s (G11)', () => {
    fc.assert(fc.property(resource, (name) => expect(resourceSlice('own', name).split('-')).toHaveLength(2)));
    expect(resourceSlice('own', 'db/x')).toBe('own-db_2fx.slice');
  });

  it('of units are read back as they were made, and fit (G6)', () => {
    fc.assert(
      fc.property(prefix, resource, generation, fc.nat(), (p, name, g, n) => {
        const unit = generationUnit(p, name, g);
        const { timer, oneshot } = leaseUnits(unit, n);
        expect(parseUnit(p, unit)).toEqual({ kind: 'generation', resource: name, generation: g });
        expect(parseUnit(p, timer)).toEqual({ kind: 'lease-timer', unit, n });
        expect(parseUnit(p, oneshot)).toEqual({ kind: 'lease-oneshot', unit, n });
        expect(parseUnit(`${p}x`, unit)).toBeUndefined();
        for (const one of [unit, timer, oneshot]) expect(one.length).toBeLessThanOrEqual(200);
      }),
    );
  });

  it.each([
    'own-x.service',
    'own-x-g0.service',
    'own-x-g01.service',
    'own-x-g1.timer',
    'own-x-g1.slice',
    'own-x-y-g1.service',
    'own-x_2-g1.service',
    'own-x_2F-g1.service',
    'own--g1.service',
    'own-x-g1-lease.timer',
    'own-x-g1.service.d',
    'own-x-g12345678901234567.service',
    'other-x-g1.service',
  ])('that this project would not have given are nobody’s: %s (G6)', (name) => {
    expect(parseUnit('own', name)).toBeUndefined();
  });

  it('takes every resource that it says it takes', () => {
    fc.assert(fc.property(resource, (name) => expect(checkResource(name)).toBe(name)));
    expect(checkResource('db/tenant-42')).toBe('db/tenant-42');
  });

  it.each([
    ['', 'empty segment'],
    ['/x', 'empty segment'],
    ['x/', 'empty segment'],
    ['a//b', 'empty segment'],
    ['..', 'segment ".."'],
    ['a/./b', 'segment "."'],
    ['a b', 'not allowed'],
    ['a\n', 'not allowed'],
    ['ż', 'not allowed'],
    ['a%n', 'not allowed'],
    ['a'.repeat(141), 'at most 140 fit'],
    ['.'.repeat(60), 'at most 140 fit'],
    [undefined, 'not a string'],
    [{}, 'not a string'],
  ])('refuses %j and says why', (name, reason) => {
    expect(() => checkResource(name)).toThrow(InvalidResourceError);
    expect(() => checkResource(name)).toThrow(reason);
  });

  it('of owners lead back to the resource, and no other workflow is one (G1)', () => {
    fc.assert(fc.property(resource, (name) => expect(resourceOfWorkflowId(ownerWorkflowId(name))).toBe(name)));
    expect(resourceOfWorkflowId('someone-else')).toBeUndefined();
  });
});
