#!/bin/busybox sh
# Runs first, from the initrd: mounts the disks and starts guest.sh from the third.
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
for module in /modules/*.ko; do
    [ ! -e "$module" ] || /bin/busybox insmod "$module"
done
tries=0
while [ ! -b /dev/vdc ] && [ $tries -lt 100 ]; do
    /bin/busybox sleep 0.1
    tries=$((tries + 1))
done
if [ ! -b /dev/vda ]; then # kvm_works in machine.py: do guests boot at all?
    echo "initrd: no disk" >/dev/ttyS0
    /bin/busybox poweroff -f
fi
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox mkdir -p /root/lib/modules
/bin/busybox mount -t ext4 -o ro /dev/vdb /root/lib/modules
/bin/busybox mkdir -p /root/payload
/bin/busybox mount -t ext4 /dev/vdc /root/payload
/bin/busybox mount --move /dev /root/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /root /payload/guest.sh
