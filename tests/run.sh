#!/usr/bin/env bash
# Installs what is missing and runs the checks and the tests of CI, as root on Debian 12. `--full`
# runs all tests. More arguments are those of pytest: `tests/run.sh tests/unit`. The exit status is
# 0 only if everything passed.
set -euo pipefail
cd "$(dirname "$0")/.."

tests/setup.sh test
# Tests of programs on a terminal need devpts, which a bare chroot may lack.
[ -e /dev/pts/ptmx ] || mount -t devpts -o ptmxmode=0666 devpts /dev/pts

step() {
    printf '\n== %s\n' "$*"
    "$@" || status=1
}
checks() {
    local status=0
    step .venv/bin/ruff check .
    step .venv/bin/ruff format --check .
    step .venv/bin/mypy
    step .venv/bin/clang-format --dry-run -Werror bpf/*/*.c bpf/*/*.h
    return "$status"
}

# The checks run beside the first tests, and are shown after all of them.
status=0
shown=$(mktemp)
trap 'rm -f "$shown"' EXIT
checks >"$shown" 2>&1 &
step tests/pytest.sh "$@"
wait $! || status=1
cat "$shown"
exit "$status"
