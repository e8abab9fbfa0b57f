import { isAbsolute } from 'node:path';
import { ControlBounds, isLoopback, TOKEN, type Endpoint } from './protocol';

/*
 * The form of what others wrote, a server's answer or a file. Each function answers with the value once it has the
 * form, and with undefined otherwise.
 */

export function objectOf(value: unknown): Record<string, unknown> | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined;
}

/** What a JSON object is, parsed. The parser's own errors quote the text, so none of them gets out of here (G8, G9). */
export function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    return objectOf(JSON.parse(text));
  } catch {
    return undefined;
  }
}

export function matching(form: RegExp, value: unknown): string | undefined {
  return typeof value === 'string' && form.test(value) ? value : undefined;
}

/** Counts from one, and what counts like it: generations, epochs. */
export function positiveInteger(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
}

/** An absolute path within the bound of a home directory. */
export function pathOf(value: unknown): string | undefined {
  const whole = typeof value === 'string' && value.length <= ControlBounds.home && !value.includes('\0');
  return whole && isAbsolute(value) ? value : undefined;
}

export function capabilitiesOf(value: unknown): readonly string[] | undefined {
  if (!Array.isArray(value) || value.length > ControlBounds.capabilities) return undefined;
  return value.every((one) => matching(TOKEN, one) !== undefined) ? (value as string[]) : undefined;
}

/**
 * Either a unix socket or a port of a loopback address (127.0.0.0/8, `::1`). Not `localhost`: what a name stands for is
 * up to the host's resolver, and the credential crosses this connection in plain text.
 */
export function endpointOf(value: unknown): Endpoint | undefined {
  const fields = objectOf(value);
  if (!fields) return undefined;
  if ('socket' in fields) {
    const socket = pathOf(fields.socket);
    return socket !== undefined && !('host' in fields || 'port' in fields) ? { socket } : undefined;
  }
  const { host } = fields;
  const port = positiveInteger(fields.port);
  return typeof host === 'string' && isLoopback(host) && port !== undefined && port <= 65_535
    ? { host, port }
    : undefined;
}
