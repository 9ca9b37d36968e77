"""Record the block profile of one process; what bench_scale runs.

    python -m tests.bench.scalerecorder PID FILE

Prints "recording", and once a line comes on its standard input the figures, as JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from ebpfprof.__main__ import collect_less_often
from ebpfprof.export import pprof
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession


def main() -> None:
    collect_less_often()
    pid, path = int(sys.argv[1]), Path(sys.argv[2])
    with LiveSession(Options(kinds=("block",)), capacity=1) as session:
        target = session.add(pid)
        session.start(target)
        print("recording", flush=True)
        sys.stdin.readline()
        session.stop(target)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        report = session.report(session.sums(target))
        (profile,) = report.profiles
        path.write_bytes(pprof.encode(profile))
        took_s, took_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        overhead = session.overhead(target)
        figures: dict[str, Any] = {
            "snapshot_s": took_s,
            "snapshot_cpu_s": took_cpu_s,
            "samples": len(profile.samples),
            "waits": sum(sample.values[0] for sample in profile.samples),
            "lost": {loss.name: loss.count for loss in session.losses()},
            "hits": overhead.hits.count,
            "maps_bytes": maps_bytes(),
            "peak_bytes": peak_bytes(),
        }
    print(json.dumps(figures), flush=True)


def maps_bytes() -> int:
    """What all BPF maps of this process take in the kernel."""
    texts = [path.read_text() for path in Path("/proc/self/fdinfo").iterdir() if path.exists()]
    found = (re.search(r"^map_type:.*^memlock:\s*(\d+)$", text, re.M | re.S) for text in texts)
    return sum(int(each[1]) for each in found if each)


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    assert found
    return int(found[1]) << 10


if __name__ == "__main__":
    main()
