"""Time in the run queue, against the histogram that Go's scheduler keeps itself."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ebpfprof.export import pprof
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.wait_histogram import NO_LENGTHS
from symbolizer.codeanalysis.globals import scheduling_latencies
from tests.builds import NEWEST, versions
from tests.go_target import inspect
from tests.recorder import recording
from tests.targets_run import Target
from tests.toolchains import toolchain

PINGPONG = Path(__file__).parent.parent / "targets" / "pingpong"
_PERIOD = 8
# runtime/histogram.go, Go 1.21 to 1.27: buckets of powers of two, each in four parts; the first one
# begins at 0, the last two are below and above all of them.
_FIRST_BITS, _LAST_BITS, _PARTS = 8, 47, 4


def bounds_ns() -> list[float]:
    """The bounds of the buckets."""
    found = [0.0] + [2.0**_FIRST_BITS / _PARTS * part for part in range(1, _PARTS)]
    for bits in range(_FIRST_BITS, _LAST_BITS):
        found += [2.0**bits * (1 + part / _PARTS) for part in range(_PARTS)]
    return [*found, 2.0**_LAST_BITS]


@pytest.mark.parametrize("minor", versions("1.21", "1.24", "1.26", "1.27"))
def test_all_stacks_add_up_to_what_the_scheduler_measured(minor: str, tmp_path: Path) -> None:
    program = toolchain(minor).build(PINGPONG)
    with Target.start(program, "-sends=200000") as target, Process(target.pid) as process:
        go = inspect(process)
        address = scheduling_latencies(go.binary)
        assert address is not None

        def measured() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
            data = process.memory.read(
                address + go.load_bias, go.binary.layout.size("timeHistogram")
            )
            return np.frombuffer(data, np.uint64)

        arguments = ("--profile", "block,runqueue", "--max-overhead", "0", "--lengths")
        with recording(target.pid, tmp_path, *arguments) as recorder:
            before = measured()
            target.ask("go", "ns ")
            counts = (measured() - before).astype(np.float64)
            recorder.interrupt()
            finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    assert b"Every wait was recorded" in finished.stdout
    profiles = {
        kind: pprof.decode(next(tmp_path.glob(f"*.{kind}.pb.gz")).read_bytes())
        for kind in ("block", "runqueue")
    }
    block, queue = (
        np.array([sample.values for sample in profiles[kind].samples]).sum(axis=0)
        for kind in ("block", "runqueue")
    )
    assert queue[0] == pytest.approx(block[0], rel=0.001)  # the wakes are those of the waits
    ran = counts.sum()
    assert queue[0] == pytest.approx(_PERIOD * ran, rel=0.02)
    least = sum(count * low for count, (low, _) in zip(counts, pairwise(bounds_ns()), strict=False))
    most = sum(
        count * high for count, (_, high) in zip(counts, pairwise(bounds_ns()), strict=False)
    )
    assert 0.9 * _PERIOD * least < queue[1] < 1.1 * _PERIOD * most
    lengths = sum((sample.lengths for sample in profiles["runqueue"].samples), NO_LENGTHS)
    for part in (0.5, 0.9, 0.99):
        found = lengths.quantile(part)
        assert found
        bucket = int(np.searchsorted(counts.cumsum(), part * ran))
        # Both have buckets, and the scheduler's histogram has the runs that followed no wait, too.
        assert bounds_ns()[max(0, bucket - 1)] <= found.ns <= bounds_ns()[bucket + 2], part


def test_one_wait_in_eight_has_the_run_queue_of_all(tmp_path: Path) -> None:
    program = toolchain(NEWEST).build(PINGPONG)
    with (
        Target.start(program, "-sends=200000") as target,
        recording(
            target.pid, tmp_path, "--profile", "block,runqueue", "--one-in-eight"
        ) as recorder,
    ):
        target.ask("go", "ns ")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    assert "Time in the run queue after waits" in finished.stdout.decode()
    (path,) = tmp_path.glob("*.runqueue.pb.gz")
    profile = pprof.decode(path.read_bytes())
    assert [each.type for each in profile.sample_types] == ["wakes", "runnable"]
    leaves = {sample.frames[0].function for sample in profile.samples if sample.values[0] > 1000}
    assert leaves == {"runtime.chansend1", "runtime.chanrecv1"} or leaves == {
        "runtime.chansend1",
        "runtime.chanrecv2",
    }
