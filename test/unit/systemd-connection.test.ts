import { connectSystemd } from '../../src/systemd/dbus-systemd';

const mockUsocketLoaded = jest.fn();
jest.mock('usocket', () => void mockUsocketLoaded(), { virtual: true });

const nowhere = { busAddress: 'unix:path=/run/no-such-bus', callTimeoutMs: 100 };

test('the native module usocket is not loaded, even where it is installed', async () => {
  await expect(connectSystemd(nowhere)).rejects.toMatchObject({ kind: 'unknown' });
  expect(mockUsocketLoaded).not.toHaveBeenCalled();
});

test('where there is no bus, connecting rejects in time and names it', async () => {
  await expect(connectSystemd(nowhere)).rejects.toMatchObject({
    kind: 'unknown',
    message: 'bus at /run/no-such-bus: connect ENOENT /run/no-such-bus',
  });
});

test('the log tells a loss once, however often it is tried again', async () => {
  const warn = jest.fn();
  const log = { debug: () => undefined, info: () => undefined, warn };
  await expect(connectSystemd({ ...nowhere, callTimeoutMs: 500, log })).rejects.toBeDefined();
  expect(warn.mock.calls).toEqual([[expect.stringContaining('/run/no-such-bus')]]);
});

test('an address that can not be used rejects at once', async () => {
  await expect(connectSystemd({ busAddress: 'unix:abstract=/tmp/dbus' })).rejects.toMatchObject({ kind: 'refused' });
});
