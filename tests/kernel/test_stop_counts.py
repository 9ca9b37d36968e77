"""Stops of goroutines counted by samples, against a program that logs its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.goruntime.goroutines.table import GoroutineTable
from ebpfprof.goruntime.samples.stop_counts import StopCounts
from ebpfprof.process.process import Target as Process
from tests.builds import versions
from tests.go_target import inspect
from tests.targets_run import Target
from tests.toolchains import toolchain

STOPS = Path(__file__).parent.parent / "targets" / "stops"
_ROUNDS = 10


@pytest.mark.parametrize("minor", versions())
def test_samples_count_every_stop(minor: str) -> None:
    program = toolchain(minor).build(STOPS)
    with Target.start(program) as target, Process(target.pid) as process:
        go = inspect(process)
        offset = go.binary.layout.offset
        table = GoroutineTable(process.memory, go.binary, go.load_bias)
        counts = StopCounts()
        target.ask(f"{offset('g', 'trackingSeq')} {offset('g', 'goid')}", "parked")
        counts.add(table.read())
        for _ in range(_ROUNDS):
            target.ask("go", "parked")
            counts.add(table.read())
        logged = json.loads(target.ask("log", "{"))
    counted = counts.by_goid()
    assert len(logged) == 5
    # After its last look each goroutine stopped once more, for good.
    assert {goid: counted[int(goid)] for goid in logged} == {
        goid: stops + 1 for goid, stops in logged.items()
    }
    assert sum(logged.values()) > 1000
