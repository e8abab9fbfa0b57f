import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const known = new Map<string, number>();

/** The uid of a user of this host, by name or number, through the host's own name service (id(1)). */
export async function uidOf(user: string): Promise<number> {
  if (/^[0-9]+$/.test(user)) return Number(user);
  const cached = known.get(user);
  if (cached !== undefined) return cached;
  try {
    const { stdout } = await promisify(execFile)('id', ['-u', '--', user]);
    const uid = Number(stdout.trim());
    known.set(user, uid);
    return uid;
  } catch (cause) {
    throw new Error(`no user "${user}" on this host: make it, or change the program's user in temporal.yaml`, {
      cause,
    });
  }
}
