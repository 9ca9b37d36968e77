#!/usr/bin/env bash
# Runs tests: those marked `alone` after all others, which run side by side. Arguments are those of
# pytest; --full, as the first one, adds the tests marked `full`. tests/run.sh sets up what they need.
#
# A test that fails runs again at once, and if it passes then, is listed as unsteady at the end. The
# first eight do, but for tests of harm. Temporary files that tests leave behind are a failure. The
# exit status is 0 only if everything passed.
set -uo pipefail
python=$(realpath "$0" | xargs dirname | xargs dirname)/.venv/bin/python

gate="not full and " timeout_s=300
if [ "${1:-}" = --full ]; then
    gate="" timeout_s=3600
    export EBPFPROF_REAL_PROGRAMS=1
    shift
fi

unset PYTHONDONTWRITEBYTECODE # each test would compile the same modules
export PYTEST_DEBUG_TEMPROOT=${TMPDIR:-/tmp}
TMPDIR=$(mktemp --directory --tmpdir ebpfprof-tests-XXXXXX)
export TMPDIR EBPFPROF_UNSTEADY=$TMPDIR.unsteady
trap 'rm -rf "$TMPDIR" "$EBPFPROF_UNSTEADY"' EXIT
chmod 1777 "$TMPDIR" # as /tmp: tests run programs of other users

# A test that hangs fails, and shows where. If it hangs when run again, its process is ended.
options=("--timeout=$timeout_s" -o "faulthandler_timeout=$((3 * timeout_s))")
options+=(-o faulthandler_exit_on_timeout=true)
options+=(--durations=15 --reruns=1 --max-suite-reruns=8 --rerun-show-tracebacks)
# That a target goes on unharmed is never by chance.
for file in tests/kernel/test_{faults,kill,leaks,soak}*.py tests/differential/test_races.py; do
    options+=("--rerun-exclude-path=$file")
done

status=0 passed=0 stopped=0
pytest() {
    "$python" -m pytest "${options[@]}" "$@"
    case $? in
    0) passed=1 ;;
    5) ;; # there are no such tests
    1) status=1 ;;
    *) status=1 stopped=1 ;; # interrupted, or a file can't be collected
    esac
}

# Two more than processors: tests wait for a third of their time. A file stays in one process, because its
# tests share targets and servers; those of tests/unit, which are many and short, come last.
lanes=$(($(nproc) + 2))
pytest -m "${gate}not alone" --numprocesses=$((lanes < 4 ? lanes : 4)) --dist=loadfile \
    --no-loadscope-reorder "$@"
[ $stopped = 1 ] || pytest -m "${gate}alone" "$@"

if [ $status = 0 ] && [ $passed = 0 ]; then
    echo "No test was run." >&2
    status=5
fi
if [ -n "$(ls -A "$TMPDIR")" ]; then
    printf '\nTemporary files left behind:\n'
    ls -A "$TMPDIR"
    status=1
fi
if [ -s "$EBPFPROF_UNSTEADY" ]; then
    printf '\nUnsteady: failed, and passed when run again:\n'
    cat "$EBPFPROF_UNSTEADY"
fi
exit $status
