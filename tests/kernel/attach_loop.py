"""Attach to processes and detach again and again, in one process; print what that holds each time.

    python -m tests.kernel.attach_loop ROUNDS PID...

Prints one line of JSON a round, taken after the session was closed; its BPF objects, while it
records, since finish() frees them. Waits for a line before it continues, so that others can look
meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.kernel.kernel_state import bpf_objects, open_files

_PAGE_KIB = 4
_RECORDED_S = 0.01

EVERYTHING = Options(
    kinds=("block", "mutex", "cpu"),
    by_lock=True,
    lock_labels=True,
    open_waits=True,
    runtime_locks=True,
)


def main(arguments: Sequence[str]) -> None:
    rounds, *pids = map(int, arguments)
    for _ in range(rounds):
        with Session(pids, EVERYTHING) as session:
            session.start()
            session.wait(_RECORDED_S, lambda gone_s: False)
            objects = sorted((each.kind, each.id) for each in bpf_objects(os.getpid()))
            reports = session.finish()
        held = {
            "objects": objects,
            "samples": [sum(len(p.samples) for p in report.profiles) for report in reports],
            "files": open_files(os.getpid()),
            "threads": len(os.listdir("/proc/self/task")),
            "resident_kib": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KIB,
        }
        print("round", json.dumps(held), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1:])
