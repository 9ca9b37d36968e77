#!/usr/bin/env bash
# Makes a Debian 12 ready for all tests of ebpfprof, as root: Vagrant runs it in the machine that it
# booted, `vagrant/matrix` in the root file system from which it boots kernels.
#
#   vagrant/provision.sh [CHECKOUT]    default: the checkout that has this script
set -euo pipefail
cd "${1:-$(dirname "$(readlink -f "$0")")/..}"
export DEBIAN_FRONTEND=noninteractive

# A fresh system has old lists of packages, or none.
apt-get -qq update
tests/setup.sh test
