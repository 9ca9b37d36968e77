#!/usr/bin/env bash
# The first process of a guest. It mounts the checkout and the built programs at the paths that they
# have on the host, runs the command, reports its exit status, and switches the machine off. Reports
# are lines of JSON on the second serial port.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=linux

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=0666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
hostname guest
stty -F /dev/ttyS1 raw -echo

printf '{"booted": "%s"}\n' "$(uname -r)" >/dev/ttyS1
status=1
# shellcheck disable=SC1091
if source /payload/places; then # CHECKOUT, CACHE
    mkdir -p "$CHECKOUT" "$CACHE"
    mount --bind /payload/checkout "$CHECKOUT"
    mount --bind /payload/cache "$CACHE"
    cd "$CHECKOUT" && setsid /payload/command </dev/null
    status=$?
fi
printf '{"ended": %d}\n' "$status" >/dev/ttyS1
sync
busybox poweroff -f
