/** Where a process listens, in its host's own network and file system. */
export type Endpoint =
  | { readonly host: string; readonly port: number }
  /** Absolute path of a unix socket. */
  | { readonly socket: string };

/** An endpoint as people write it. */
export function endpointText(endpoint: Endpoint): string {
  if ('socket' in endpoint) return endpoint.socket;
  const { host, port } = endpoint;
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
