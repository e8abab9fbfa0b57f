#!/usr/bin/env bash
# Usage: private-host.sh FOLDER CGROUP KEEP
#
# Boots one private systemd host and stays beside it until the test that asked for it lets go.
#
#   FOLDER   the host's folder on the real disk; holds the files boot-id and machine-id and the folder state
#   CGROUP   a new cgroup2 directory to make; the whole host lives below it
#   KEEP     a path to leave visible where it lies below a folder that the host mounts over (the checkout)
#
# stdout   one line, the host's PID 1 as seen from outside, once its manager answers on its bus
# stdin    held open by the test. At end of file the host is ended and everything of it removed; after a line `reboot`
#          FOLDER stays.
#
# End of file comes however the test process ends, by SIGKILL too. So there is one way to clean up, and it needs neither
# exit handlers nor the test's cooperation.
set -euo pipefail

folder=$1 cgroup=$2 keep=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unshare='' pid='' wish=''

remove_cgroup() {
  [ -d "$cgroup" ] || return 0
  # Commands that entered the host's namespaces have a parent outside of them; they are in the host's cgroup for this.
  [ ! -e "$cgroup/cgroup.kill" ] || echo 1 > "$cgroup/cgroup.kill"
  # A killed process leaves its cgroup a moment later, and a shell cannot wait for cgroup.events.
  for _ in $(seq 500); do
    find "$cgroup" -depth -type d -exec rmdir {} + 2> /dev/null && return 0
    [ -d "$cgroup" ] || return 0
    sleep 0.02
  done
  echo "private host: $cgroup still holds processes 10 s after SIGKILL: $(find "$cgroup" -name cgroup.procs -exec cat {} + | tr '\n' ' ')" >&2
  return 1
}

clean_up() {
  local status=$?
  trap - EXIT
  set +e
  if [ -n "$unshare" ]; then
    # The kernel ends a pid namespace with its PID 1. As long as that has our unshare as its parent, the pid is its own;
    # a host that ended by itself may have left the number to a stranger.
    if grep -qs "^PPid:[[:space:]]*$unshare$" "/proc/$pid/status"; then kill -KILL "$pid"; else kill -KILL "$unshare"; fi
    wait "$unshare"
  fi 2> /dev/null
  remove_cgroup || status=1
  # Units with PrivateTmp= have a folder in the real /var/tmp that only their own manager removes. Its boot id names it.
  rm -rf --one-file-system /var/tmp/systemd-private-"$(tr -d '\n-' < "$folder/boot-id")"-*
  rm -f "$folder/ready"
  [ "$wish" = reboot ] || rm -rf --one-file-system "$folder"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

mkdir "$cgroup"
mkfifo "$folder/ready"
# Should this script be killed, the chain of death signals ends the host. Only `unshare` itself keeps fd 3 open, so a
# host that dies while it boots reads as end of file below.
setpriv --pdeathsig KILL unshare --mount --uts --ipc --pid --fork --kill-child=KILL \
  bash "$here/private-host-init.sh" "$folder" "$cgroup" "$keep" 3> "$folder/ready" < /dev/null > "$folder/console" 2>&1 &
unshare=$!

exec 4< "$folder/ready"
read -r -t 20 pid <&4 || { echo "private host: did not get its namespaces: $(tail -n 5 "$folder/console")" >&2; exit 1; }
if ! read -r -t 20 _ <&4; then
  echo "private host: no answer on its bus within 20 s. Its console and journal end with:" >&2
  tail -n 5 "$folder/console" >&2
  timeout -s KILL 5 nsenter --target "$pid" --all journalctl --no-pager --lines 15 --output cat >&2 || true
  exit 1
fi
exec 4<&-

echo "$pid"
read -r wish || true
