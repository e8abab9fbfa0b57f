import { Connection } from '../src/systemd/connection';

/** Counts the method calls that this process makes on message buses from now on; returns how to read the count. */
export function countBusCalls(): () => number {
  const call = Reflect.get(Connection.prototype, 'call');
  let calls = 0;
  Connection.prototype.call = function (this: Connection, ...args) {
    calls++;
    return call.apply(this, args);
  };
  return () => calls;
}
