#!/usr/bin/env bash
# Installs what is missing, as root on Debian 12: packages with apt-get, the Python environment
# in .venv, Go toolchains in ~/.cache/ebpfprof.
#
#   tests/setup.sh run     what ebpfprof and its demo need
#   tests/setup.sh test    what the tests and benchmarks need, too
#   tests/setup.sh fresh   what those need that install packages on a fresh Debian, and those with a
#                          containerd, besides; where Docker's own packages are, apt removes them
#   tests/setup.sh builds  the compilers of tests/odd_targets
set -euo pipefail
cd "$(dirname "$0")/.."
here=$(pwd -P)

python=.venv/bin/python

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# Runs a command and shows what it prints only if it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail "failed: $*"
    fi
    rm -f "$log"
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_packages() {
    local missing=() package
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || fail "Packages are missing (${missing[*]}). Run this as root."
    say "apt-get install ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Tests that run side by side may both want packages: one after the other.
    quietly flock tests/setup.sh apt-get -q update
    quietly flock tests/setup.sh apt-get -q install -y --no-install-recommends "${missing[@]}"
}

# Whether .venv runs this checkout's code.
is_ours() {
    local code='import ebpfprof, sys; sys.exit(ebpfprof.__path__ != sys.argv[1:])'
    "$python" -I -c "$code" "$here/ebpfprof" 2>/dev/null
}

# Replaces an environment that was copied or moved, since its programs have the old path in them.
# Stamps in it hold its path and the hash of its sources. Isolated (-I), as the command starts:
# packages in a user's own site-packages don't count.
install_python() {
    local kind=$1 stamp=.venv/.setup-$1 place=.venv/.setup-place file wanted pip
    wanted=$(sha256sum pyproject.toml ebpfprof/data/ebpfprof tests/setup.sh tests/requirements/*.txt | sha256sum)
    pip=("$python" -I -m pip install)
    if [ "$(cat "$place" 2>/dev/null)" != "$here" ] || ! "$python" -c '' 2>/dev/null; then
        say "python3 -m venv .venv"
        quietly /usr/bin/python3 -I -m venv --clear --system-site-packages .venv
        echo "$here" >"$place"
    fi
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && is_ours; then return 0; fi
    say "pip install --requirement tests/requirements/$kind.txt --editable ."
    # Exactly these files, including the pip that installs them and the tools that build ours.
    quietly "${pip[@]}" --require-hashes --requirement tests/requirements/pip.txt
    for file in build "$kind"; do
        quietly "${pip[@]}" --require-hashes --no-deps --requirement "tests/requirements/$file.txt"
    done
    quietly "${pip[@]}" --no-deps --no-build-isolation --editable .
    link_checkout
    is_ours || fail ".venv does not run $here/ebpfprof. Remove .venv, and run this again."
    echo "$wanted" >"$stamp"
}

# As packages do when they are installed: where PYTHONDONTWRITEBYTECODE is set, each start would
# compile all modules again, which takes 0.15 s of CPU time.
compile_python() {
    quietly "$python" -I -m compileall -q ebpfprof symbolizer
}

# pip writes the whole path of the checkout, in UTF-8. Python decodes it by the locale, and with
# LC_ALL=C can't start if it is not ASCII. So we write a relative path.
link_checkout() {
    local paths=(.venv/lib/python3.*/site-packages/*ebpfprof.pth)
    realpath --relative-to="${paths[0]%/*}" . >"${paths[0]}"
}

install_go() {
    say "Go ${*:-of all tested versions}"
    quietly "$python" -m tests.toolchains install "$@"
}

# A link leads to another checkout's environment, which runs that checkout's code.
[ ! -L .venv ] || fail "$here/.venv is a link. Remove it (rm .venv) and run this again."
command -v apt-get >/dev/null || fail "There is no apt-get: this script is for Debian 12."
case ${1:-} in
run)
    install_packages python3 python3-venv python3-bpfcc
    install_python run
    compile_python
    install_go 1.27
    ;;
test)
    install_packages python3 python3-venv python3-bpfcc golang-1.19-go gcc g++ libc6-dev llvm \
        groff-base less bpftrace linux-perf sudo tmux chromium chromium-driver openssl python3-h2 \
        systemd iproute2 iptables
    install_python test
    compile_python
    install_go
    say "programs of other projects"
    quietly "$python" -m tests.foreign
    quietly "$python" -m tests.backends.building
    ;;
fresh)
    install_packages debootstrap systemd-container podman containerd runc
    ;;
builds)
    install_packages clang libclang-rt-14-dev gccgo-12
    ;;
*)
    fail "Usage: tests/setup.sh run|test|fresh|builds"
    ;;
esac
say "ready"
