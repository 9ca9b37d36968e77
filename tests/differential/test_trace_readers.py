"""A reader of traces outside of Go's own repository replays what we write, a million events long.

It is fetched from the Go module proxy, with the checksum in tests/readers/exptrace/go.sum.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from ebpfprof.export.timelines import go_trace
from ebpfprof.timeline.model import Timeline
from tests.differential.test_execution_trace import traced
from tests.differential.test_trace_formats import changes_of_goroutines
from tests.kernel.programs import NEWEST
from tests.simulated_scheduler import SimulatedScheduler, steps_of, timeline_of_steps
from tests.toolchains import run, toolchain

pytestmark = pytest.mark.full
READER = Path(__file__).parents[1] / "readers" / "exptrace"
MANY = 1_000_000
# What a step of the simulation adds to the events, at least.
EVENTS_A_STEP = 0.75


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("reader") / "exptrace"
    network = {"GOPROXY": "https://proxy.golang.org", "GOFLAGS": "-mod=readonly", "GOSUMDB": "off"}
    toolchain(NEWEST).go("build", "-o", program, ".", cwd=READER, env=network)
    return program


def read(reader: Path, timeline: Timeline, folder: Path) -> Counter[str]:
    path = folder / "a.trace"
    path.write_bytes(go_trace.encode(timeline))
    lines = run([reader, path], cwd=None, env=dict(os.environ)).splitlines()
    return Counter({kind: int(count) for kind, count in (line.split() for line in lines)})


@pytest.mark.parametrize("lost", [0, 0.02])
def test_a_million_events_are_read_without_a_complaint(
    lost: float, reader: Path, tmp_path: Path
) -> None:
    random = Random(1)
    world = SimulatedScheduler(random)
    events = world.run(int(MANY / EVENTS_A_STEP / (1 - lost)))
    kept = [event for event in events if random.random() >= lost]
    steps, _ = steps_of(kept, world.known)
    timeline = timeline_of_steps(steps, world.now_ns)
    found = read(reader, timeline, tmp_path)
    assert len(kept) >= MANY
    assert found["Goroutine"] == changes_of_goroutines(timeline)
    assert found.total() > MANY


def test_a_recording_is_read_without_a_complaint(reader: Path, tmp_path: Path) -> None:
    timeline, _ = traced("channels", NEWEST, tmp_path)
    found = read(reader, timeline, tmp_path)
    assert found["Goroutine"] == changes_of_goroutines(timeline) > 1000
