#!/usr/bin/env bash
# Installs what the host needs for virtual machines, as root on Debian 12.
#
#   vagrant/setup.sh qemu      for vagrant/matrix: plain QEMU
#   vagrant/setup.sh vagrant   for Vagrant with libvirt, and for vagrant/box
set -euo pipefail

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

case ${1:-} in
qemu)
    packages=(qemu-system-x86 mmdebstrap debian-archive-keyring busybox-static cpio kmod e2fsprogs)
    ;;
vagrant)
    packages=(qemu-system-x86 qemu-utils vagrant vagrant-libvirt libvirt-daemon-system
        libvirt-clients libvirt-daemon-driver-qemu dnsmasq-base iptables rsync
        mmdebstrap debian-archive-keyring e2fsprogs) # the last three for vagrant/box
    ;;
*) fail "Usage: vagrant/setup.sh qemu|vagrant" ;;
esac
[ "$(id -u)" = 0 ] || fail "Run this as root."
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends "${packages[@]}"
