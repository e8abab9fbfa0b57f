import { ApplicationFailure, workflowInfo } from '@temporalio/workflow';
import { FailureType } from '../contract/failures';
import { checkResource, InvalidResourceError, ownerWorkflowId } from '../contract/names';
import type { OwnInput } from '../contract/owner';
import type { Owner } from './owner';

/** Longest text of a caller that is kept. */
const MAX_TEXT = 500;

/**
 * Fails an owner that was started with something else than the client sends, by hand in the UI for instance. Every other
 * error would leave it open and stuck.
 */
export function checkInput(input: unknown): void {
  if (!isRecord(input))
    return refuse('start an owner with {"resource": …, "program": …, "host": …, "parameters": {}, "requestId": …}');
  const { resource, program, host, parameters, wish } = input as Partial<OwnInput>;
  try {
    checkResource(resource);
  } catch (error) {
    if (error instanceof InvalidResourceError) refuse(error.message);
    throw error;
  }
  const { workflowId } = workflowInfo();
  const expected = ownerWorkflowId(resource!);
  if (workflowId !== expected) refuse(`the owner of ${resource} has workflow id ${expected}, not ${workflowId}`);
  for (const [name, value] of Object.entries({ program, host })) {
    if (typeof value !== 'string' || value === '') refuse(`"${name}" is a name, not ${JSON.stringify(value)}`);
  }
  if (wish !== undefined && wish !== 'stopped') refuse(`"wish" is "stopped" or left out, not ${JSON.stringify(wish)}`);
  if (!isRecord(parameters) || Object.values(parameters).some((value) => typeof value !== 'string')) {
    refuse(`"parameters" is an object of texts, not ${JSON.stringify(parameters)}`);
  }
}

/** Synchronous validator of a request. Every text is read by a person in the UI's dialog. */
export function checkRequest(owner: Owner, request: unknown): void {
  if (request === undefined || request === null) return;
  if (!isRecord(request))
    return refuse(`give a JSON object such as {"reason": "maintenance"}, not ${JSON.stringify(request)}`);
  const { ownerId, now, reason, by } = request;
  if (now !== undefined && typeof now !== 'boolean') refuse(`"now" is true or false, not ${JSON.stringify(now)}`);
  for (const [name, value] of Object.entries({ reason, by })) {
    if (value !== undefined && typeof value !== 'string') refuse(`"${name}" is a text, not ${JSON.stringify(value)}`);
  }
  if (ownerId !== undefined && ownerId !== owner.data.ownerId) {
    refuse(
      `this request is for owner ${JSON.stringify(ownerId)}, this one is ${owner.data.ownerId}`,
      FailureType.NotThisOwner,
    );
  }
}

export function refuse(message: string, type: string = FailureType.InvalidRequest): never {
  throw ApplicationFailure.nonRetryable(message, type);
}

/** What a caller writes is shown to people: bounded, and on one line. */
export function oneLine(text: string | undefined): string {
  return (text ?? '').replace(/\s+/g, ' ').slice(0, MAX_TEXT);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
