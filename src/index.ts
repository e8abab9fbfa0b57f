/** For the process that hosts workers: `import { SystemdPlugin, loadConfig } from 'temporal-systemd'`. */
export { SystemdPlugin } from './plugin';
export type { SystemdPluginOptions } from './plugin';
export { ConfigError, EXIT_CONFIG, loadConfig, resolveConnection } from './config';
export type { Config, ConfigProblem, ConnectionConfig, HostConfig, Program, RestartPolicy } from './config';
export { ClaimedError } from './host/instance';
export type { HostLog } from './host/log';
