import type { Program } from './config';
import { pathText, valueText } from './config-error';

/** Longest value of a parameter, in characters: it becomes an argument of a process and stands in Temporal. */
export const MAX_PARAMETER_LENGTH = 1_024;

/** One parameter that a start can't be made with. Values of parameters are public by definition. */
export interface ParameterProblem {
  readonly parameter: string;
  /** Printable and shortened. */
  readonly value: string;
  readonly message: string;
  readonly remedy: string;
}

/**
 * Everything that keeps a start from being made with these parameters; empty when it can be. Each declared parameter
 * must be there, match its pattern whole, and hold no control character whatever the pattern says; there may be no others.
 */
export function checkParameters(program: Program, parameters: unknown): readonly ParameterProblem[] {
  if (typeof parameters !== 'object' || parameters === null || Array.isArray(parameters)) {
    const remedy = 'give an object: parameter name → text';
    return [{ parameter: '(all)', value: valueText(parameters), message: 'are no object', remedy }];
  }
  const given = parameters as Readonly<Record<string, unknown>>;
  const declared = Object.keys(program.parameters);
  const problems: ParameterProblem[] = [];
  for (const name of declared) {
    const value = Object.hasOwn(given, name) ? given[name] : undefined;
    const fault = checkValue(value, program.parameters[name]!);
    if (fault) problems.push({ parameter: name, value: valueText(value), ...fault });
  }
  for (const name of Object.keys(given)) {
    if (Object.hasOwn(program.parameters, name)) continue;
    const message = `is no parameter of the program "${program.name}"`;
    const remedy = `leave it out; there are: ${declared.join(', ') || 'none'}`;
    problems.push({ parameter: pathText([name]), value: valueText(given[name]), message, remedy });
  }
  return problems;
}

function checkValue(value: unknown, pattern: RegExp): { message: string; remedy: string } | undefined {
  const remedy = `give text that matches ${pattern.source}`;
  if (value === undefined) return { message: 'is missing', remedy };
  if (typeof value !== 'string') return { message: 'is not text', remedy };
  if (value.length > MAX_PARAMETER_LENGTH) {
    return { message: `is longer than ${MAX_PARAMETER_LENGTH} characters`, remedy };
  }
  // `[^x]` and the like let a NUL or a line break through, which cut an argument or a log line in two.
  if (/[\p{Cc}\p{Surrogate}]/u.test(value))
    return { message: 'has a control character or is not valid Unicode', remedy };
  return pattern.test(value) ? undefined : { message: 'does not match its pattern', remedy };
}
