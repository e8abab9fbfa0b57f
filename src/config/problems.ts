import type { z } from 'zod';
import { pathText, typeText, valueText } from './config-error';
import type { ConfigProblem } from './config-error';
import type { ConfigDocument } from './document';

/** What zod found, as problems: with the place in the file, the value where it may be shown, and the remedy. */
export function toProblems(
  issues: readonly z.core.$ZodIssue[],
  document: ConfigDocument,
  file: string,
): readonly ConfigProblem[] {
  return issues.flatMap((issue): ConfigProblem[] => {
    const problem = (
      path: readonly PropertyKey[],
      message: string,
      remedy: string,
      value = safeText(path, valueAt(document.data, path)),
    ): ConfigProblem => ({ file, path: pathText(path), value, message, remedy, ...document.locate(path) });

    switch (issue.code) {
      case 'custom': {
        const { remedy, shown } = issue.params as { remedy: string; shown?: string };
        return [problem(issue.path, issue.message, remedy, shown)];
      }
      case 'unrecognized_keys':
        return issue.keys.map((key) => {
          const path = [...issue.path, key];
          // Nothing is known of such a value, so nothing of it is shown (G9).
          return problem(
            path,
            'is not known here',
            remedyForKey(path) ?? issue.message,
            typeText(valueAt(document.data, path)),
          );
        });
      case 'invalid_key':
        return issue.issues.map((inner) => {
          const params = inner.code === 'custom' ? (inner.params as { remedy: string }) : undefined;
          return problem(
            issue.path,
            inner.message,
            params?.remedy ?? 'rename it',
            typeText(valueAt(document.data, issue.path)),
          );
        });
      default:
        return [problem(issue.path, ...describeStructure(issue, valueAt(document.data, issue.path)))];
    }
  });
}

function describeStructure(issue: z.core.$ZodIssue, value: unknown): [message: string, remedy: string] {
  const expected = issue.code === 'invalid_type' && issue.expected === 'array' ? 'list' : 'map';
  if (value === undefined) return ['is missing', `add it: a ${expected}`];
  const remedy = expected === 'list' ? 'write a list: ["…", "…"]' : 'write its keys below it, indented';
  return value === null ? ['has no value', `${remedy}, or remove the key`] : [`is not a ${expected}`, remedy];
}

/** Keys that people try and that deserve a better answer than a list of the known ones. */
function remedyForKey(path: readonly PropertyKey[]): string | undefined {
  const key = String(path.at(-1));
  if (path[0] === 'connection' && /^api_?key$/i.test(key)) return 'put it into a file and name it with apiKeyFile';
  if (path[0] === 'programs' && key === 'command') return 'the command is called exec, a list';
  return undefined;
}

/**
 * The value, unless it may be a secret that was written in the wrong place (G9): variables, what stands where the path
 * of a secret's file belongs, a `NAME=value` in place of a file, and arguments.
 */
function safeText(path: readonly PropertyKey[], value: unknown): string {
  const [top, , section] = path;
  const last = path.at(-1);
  if (top === 'programs' && (section === 'environment' || section === 'credentials' || section === 'exec'))
    return typeText(value);
  if (top === 'programs' && section === 'environmentFiles' && typeof value === 'string' && value.includes('='))
    return typeText(value);
  if (top === 'connection' && (last === 'apiKeyFile' || last === 'clientKeyFile')) return typeText(value);
  return valueText(value);
}

/** What stands at a path; of a short form (`restart: no`) the value that was written instead of its keys. */
function valueAt(data: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((value, key) => {
    if (typeof value !== 'object' || value === null) return value ?? undefined;
    return Object.hasOwn(value, key) ? (value as Record<PropertyKey, unknown>)[key] : undefined;
  }, data);
}
