import { SystemdError } from './port';

/**
 * The socket's path in a D-Bus address (D-Bus specification, "Server Addresses"): `unix:path=PATH`, of a list the
 * first that fits. Throws a {@link SystemdError} of kind `refused`, with the remedy, for an address that can't be used.
 */
export function socketPath(address: string): string {
  for (const entry of address.split(';')) {
    const [transport, pairs = ''] = splitOnce(entry, ':');
    if (transport !== 'unix') continue;
    const keys = new Map(pairs.split(',').map((pair) => splitOnce(pair, '=')));
    const path = keys.get('path') ?? keys.get('socket');
    if (path) return usable(address, decode(path));
  }
  throw new SystemdError(
    'refused',
    `bus address ${JSON.stringify(address)} can't be used: only unix:path=PATH is supported. An abstract socket ` +
      '(unix:abstract=) needs a native module; let the bus listen on a path as well, e.g. unix:path=/run/user/1000/bus',
  );
}

/** dbus-next splits an address at these characters, whatever the escaping; the kernel's limit would cut the path. */
function usable(address: string, path: string): string {
  if (path.startsWith('/') && !/[:;,=]/.test(path) && Buffer.byteLength(path) <= 107) return path;
  throw new SystemdError(
    'refused',
    `bus address ${JSON.stringify(address)} can't be used: the path must be absolute, at most 107 bytes (unix(7)) and ` +
      'without any of ":;,="',
  );
}

/** Undoes the specification's escaping of bytes as %XX. */
function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return ''; // not escaped properly, so not the path of anything
  }
}

function splitOnce(text: string, separator: string): [string, string | undefined] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}
