#!/usr/bin/env bash
# Installs what is missing, builds a demo Go service with real contention, profiles it from
# outside for ten seconds and shows the result. As root on Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."

tests/setup.sh run

folder=$(mktemp -d)
service=
end() {
    [ -z "$service" ] || kill "$service" 2>/dev/null || true
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

program=$(.venv/bin/python -m tests.toolchains build tests/targets/demo 1.27)
# The service ends when its input closes, so it cannot outlive this script.
mkfifo "$folder/in" "$folder/out"
"$program" <"$folder/in" >"$folder/out" &
service=$!
exec 8>"$folder/in" 9<"$folder/out"
read -r -t 30 _ pid <&9 || {
    echo "demo: the service did not start" >&2
    exit 1
}
printf '\nThe demo service runs as process %s. It knows nothing of profiling.\n' "$pid"

options=(--by-lock --duration 10)
printf '\n$ ebpfprof attach --pid %s %s\n' "$pid" "${options[*]}"
.venv/bin/ebpfprof attach --pid "$pid" "${options[@]}"

profile=$(ls demo-"$pid"-*.block.pb.gz | tail -n 1)
printf '\n$ go tool pprof -top %s\n' "$profile"
.venv/bin/python -m tests.toolchains go 1.27 tool pprof -top -nodecount=15 "$profile"
