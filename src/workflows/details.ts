import { recoveryText, serverText } from '../contract/control';
import { endpointText } from '../contract/endpoint';
import { programText } from '../contract/facts';
import type { OwnerStatus } from '../contract/owner';

/** The small table in the UI's current details: the facts of the workflow, for a person who wonders what it waits for. */
export function detailsTable(status: OwnerStatus): string {
  const { placement, asked, control } = status;
  const rows: [string, string | undefined][] = [
    ['state', stateText(status)],
    ['since', time(status.since)],
    [
      'host',
      status.hostUnreachableSince === undefined
        ? status.host
        : `${status.host}: unreachable since ${time(status.hostUnreachableSince)}`,
    ],
    ['program', programText(status.program, status.programState)],
    ['unit', placement?.unit],
    ['endpoint', placement?.endpoint && endpointText(placement.endpoint)],
    ['server', control && placement?.control && serverText(control, placement.control.endpoint)],
    ['found', control?.recovery && recoveryText(control.recovery)],
    ['warnings', control?.warnings.join('; ') || undefined],
    ['asked', asked && `${asked.what} by ${asked.by} at ${time(asked.at)}${asked.reason ? `: ${asked.reason}` : ''}`],
    ['rung', status.rung],
    [
      'still there',
      status.remaining.map((p) => `${p.pid} ${p.command} (${p.state}, ${p.waitChannel})`).join(', ') || undefined,
    ],
    ['last event', status.lastEvent],
    ['next', status.next],
    ['restarts', String(status.restarts)],
    ['last exit', status.lastExit?.wording],
  ];
  const lines = rows.flatMap(([name, value]) => (value === undefined ? [] : [`| ${name} | ${cell(value)} |`]));
  return ['| | |', '|---|---|', ...lines].join('\n');
}

/** The state with what overlays it, e.g. `running, host unreachable`. */
export function stateText(status: Pick<OwnerStatus, 'state' | 'hostUnreachableSince' | 'ready'>): string {
  const overlay = status.hostUnreachableSince === undefined ? '' : ', host unreachable';
  return status.state + (status.state === 'running' && !status.ready ? ', not ready yet' : '') + overlay;
}

function time(epochMs: number): string {
  return new Date(epochMs).toISOString();
}

/** Words of other people must not break the table. */
function cell(text: string): string {
  return text.replace(/[|\r\n]/g, ' ');
}
