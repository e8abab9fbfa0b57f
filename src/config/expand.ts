/** `${name}`, the one form that is replaced; every other `$` is a plain character. */
const PLACEHOLDER = /\$\{([^{}]*)\}/g;

/** The name in a template that always has a value: the resource that the process is started for. */
export const RESOURCE = 'resource';

/**
 * Fills a template of `temporal.yaml`: each `${name}` becomes the value of that name. What a value contains is never
 * looked at again, so a parameter can't name another one.
 *
 * Throws an Error for a name without a value: the configuration was checked when it was loaded, so that would be a
 * mistake of the caller.
 */
export function expand(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(PLACEHOLDER, (_placeholder, name: string) => {
    // Own properties alone: `${constructor}` must not find what every object inherits.
    if (!Object.hasOwn(values, name)) throw new Error(`no value for "\${${name}}" in a template`);
    return values[name]!;
  });
}

/** The names that a template asks for, in order, as often as they occur. */
export function placeholders(template: string): readonly string[] {
  return [...template.matchAll(PLACEHOLDER)].map((match) => match[1]!);
}
