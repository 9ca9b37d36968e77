"""Stops of goroutines counted by samples, against a program that logs its own."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from ebpfprof.goruntime.goroutines.table import GoroutineTable
from ebpfprof.goruntime.process import inspect
from ebpfprof.goruntime.samples.stop_counts import StopCounts
from ebpfprof.process.memory import Memory
from ebpfprof.process.process import Target as Process
from tests.builds import versions
from tests.targets_run import Target
from tests.toolchains import toolchain

STOPS = Path(__file__).parent.parent / "targets" / "stops"
_APART_S = 0.004


@pytest.mark.parametrize("minor", versions())
def test_samples_count_every_stop(minor: str) -> None:
    program = toolchain(minor).build(STOPS)
    with Target.start(program) as target, Process(target.pid) as process:
        go = inspect(process)
        offset = go.binary.layout.offset
        with Memory(process) as memory:
            table = GoroutineTable(memory, go.binary, go.load_bias)
            counts = StopCounts()
            target.ask(f"{offset('g', 'trackingSeq')} {offset('g', 'goid')} 1000", "parked")
            counts.add(table.read())
            is_over = threading.Event()

            def sample() -> None:
                while not is_over.wait(_APART_S):
                    counts.add(table.read())

            sampling = threading.Thread(target=sample)
            sampling.start()
            target.ask("go", "stopped")
            is_over.set()
            sampling.join()
            counts.add(table.read())
            logged = json.loads(target.expect("{"))
    counted = counts.by_goid()
    assert len(logged) == 5
    # After its last look each goroutine stopped once more, for good.
    assert {goid: counted[int(goid)] for goid in logged} == {
        goid: stops + 1 for goid, stops in logged.items()
    }
    assert sum(logged.values()) > 1000
