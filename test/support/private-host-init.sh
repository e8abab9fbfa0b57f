#!/usr/bin/env bash
# Usage: private-host-init.sh FOLDER CGROUP KEEP (see private-host.sh), as PID 1 of new mount, pid, uts and ipc namespaces
#
# Turns its namespaces into a host and becomes its systemd. Nothing of the machine may be touched on the way: the root
# file system is the machine's own, so whatever systemd writes to is mounted over first.
set -euo pipefail

folder=$1 cgroup=$2 keep=$3

if [ "${4:-}" != in-cgroup ]; then
  # /proc is still the outer one here, so this is the pid as the outside sees it.
  read -r pid _ < /proc/self/stat
  echo "$pid" >&3
  exec 3>&-
  # Into the cgroup first: it becomes the root of the cgroup namespace that is unshared next. Only PID 1 moves there; a
  # process that stayed in that root would keep systemd from enabling controllers below it.
  echo 0 > "$cgroup/cgroup.procs"
  exec unshare --cgroup bash "$0" "$folder" "$cgroup" "$keep" in-cgroup
fi

# Private keeps mounts from the machine. Shared again, because LoadCredential= gives an empty directory without it.
mount --make-rprivate /
mount --make-rshared /
mount -t proc proc /proc

# Each host needs a boot id of its own: all of them would read the machine's. The same holds for the machine id.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys # systemd raises limits of the kernel there
mount --bind "$folder/boot-id" /proc/sys/kernel/random/boot_id
mount --bind "$folder/machine-id" /etc/machine-id

! mountpoint --quiet /sys/fs/cgroup || umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup

# systemd-tmpfiles empties /tmp. The checkout may well lie below /tmp; read-only, it is safe in either case.
mkdir -p "$folder/keep"
mount --bind "$keep" "$folder/keep"
mount -t tmpfs -o mode=0755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
[ ! -d /var/lib/systemd ] || mount -t tmpfs -o mode=0755 state /var/lib/systemd
if [ ! -d "$keep" ]; then
  mkdir -p "$keep"
  mount --bind "$folder/keep" "$keep"
  mount -o remount,bind,ro "$keep"
fi
umount "$folder/keep"
[ ! -e /dev/console ] || mount --bind /dev/null /dev/console

units=/run/systemd/system
mkdir -p $units /run/systemd/system-generators /run/systemd/journald.conf.d
# What would touch the machine: its devices, kernel, limits, clock, accounts and files; the mounts and links that would
# need an entry in its /dev; and the targets through which an administrator's units would come in.
for unit in systemd-tmpfiles-{setup,setup-dev,clean}.service systemd-tmpfiles-clean.timer systemd-{sysctl,binfmt}.service \
  systemd-{modules-load,random-seed,remount-fs,sysusers,timesyncd,update-utmp,journal-flush,machine-id-commit}.service \
  systemd-udevd.service systemd-udevd-{control,kernel}.socket systemd-udev-{trigger,settle}.service modprobe@.service \
  systemd-journald-{audit,dev-log}.socket dev-{hugepages,mqueue}.mount sys-kernel-{config,debug,tracing}.mount \
  sys-fs-fuse-connections.mount {local-fs,swap,sockets,timers,paths}.target; do
  ln -s /dev/null "$units/$unit"
done
# Generators turn the machine's fstab, cron and init scripts into units.
for generator in /{etc,lib}/systemd/system-generators/*; do
  ln -sf /dev/null "/run/systemd/system-generators/${generator##*/}"
done
printf '[Journal]\nStorage=volatile\nReadKMsg=no\n' > /run/systemd/journald.conf.d/private-host.conf

cat > $units/dbus.socket << 'END'
[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
END
cat > $units/dbus.service << 'END'
[Unit]
DefaultDependencies=no
Requires=dbus.socket
After=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation
ExecReload=/usr/bin/dbus-send --system --type=method_call --dest=org.freedesktop.DBus / org.freedesktop.DBus.ReloadConfig
OOMScoreAdjust=-900
END
# The host is ready when its manager answers on its bus, which is what a worker will need.
cat > $units/private-host-ready.service << END
[Unit]
DefaultDependencies=no
Requires=dbus.service
After=dbus.service
[Service]
Type=oneshot
ExecStart=/usr/bin/busctl --quiet get-property org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager Version
ExecStart=/bin/sh -c 'echo ready > "$folder/ready"'
END
cat > $units/private-host.target << 'END'
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service dbus.socket dbus.service private-host-ready.service
END

cd /
exec env -i container=temporal-systemd-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=private-host.target
