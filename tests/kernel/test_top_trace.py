"""The execution trace that `ebpfprof top` writes at a key, on a real program."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.kernel import c_facts
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from tests.kernel.kernel_state import probed
from tests.kernel.live_counts import HANDS, counts
from tests.kernel.programs import NEWEST, program
from tests.kernel.screens import Screen, screen
from tests.kernel.test_top import GET, ROOT, TOP, begin
from tests.targets_run import Target
from tests.toolchains import toolchain

PARK = c_facts.enum("trace/events.h", "event_kind")["PARK"]


@pytest.fixture(scope="module")
def traced() -> Iterator[Target]:
    with Target.start(program("demo")) as target:
        yield target


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Screen]:
    with screen(tmp_path, 120, 30, PYTHONPATH=str(ROOT)) as shown:
        yield shown


def end(terminal: Screen, target: Target) -> None:
    """Its good end; the area for instructions that the kernel can't emulate stays (GC assists)."""
    terminal.press("q")
    terminal.wait_for(r"^status 0$")
    assert not probed(target.pid)


@pytest.mark.full
def test_a_key_writes_the_last_seconds_of_a_trace_as_often_as_one_likes(
    terminal: Screen, traced: Target, tmp_path: Path
) -> None:
    begin(terminal, traced, options="--profile block --last 1s")
    terminal.wait_for(r"trace: last 1 s")
    for number in ("", r"(?:-2)?"):
        terminal.press("T")
        name = rf"demo-{traced.pid}-\d{{8}}-\d{{6}}{number}\.trace"
        terminal.wait_for(rf"^Written: {name}, \S+ m?s\.\s+Next:\s+go\s+tool\s+trace\s+{name}")
        terminal.press("d")
        terminal.wait_for(GET, without="^Written")
    first, second = sorted(tmp_path.glob("*.trace"), key=lambda path: path.stat().st_mtime_ns)
    ends = []
    for path in (first, second):
        text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", path)
        times = [int(at) for at in re.findall(r" StateTransition Time=(\d+) ", text)]
        assert "main.(*PriceCache).Get" in text
        assert 0 < max(times) - min(times) <= 1e9
        ends.append(max(times))
    assert ends[0] < ends[1]
    end(terminal, traced)


@pytest.mark.full
def test_without_that_the_next_seconds_are_recorded_and_the_key_ends_it_early(
    terminal: Screen, traced: Target, tmp_path: Path
) -> None:
    begin(terminal, traced)
    terminal.press("T")
    terminal.wait_for(r"^Tracing: \d s to go\. T ends", r"trace: 5 s")
    terminal.press("T")
    terminal.wait_for(rf"^Written: demo-{traced.pid}\S+\.trace, ", without="trace: 5 s")
    (path,) = tmp_path.glob("*.trace")
    text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", path)
    assert "main.(*PriceCache).Get" in text
    end(terminal, traced)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--pid {0} --pid {1}", r"covers one process, but 2 were chosen"),
        ("--pid {0} --once", "needs the live table, where T writes the trace"),
    ],
)
def test_a_trace_needs_one_process_and_a_screen(options: str, said: str, traced: Target) -> None:
    pids = traced.pid, os.getpid()
    done = subprocess.run(
        [*shlex.split(TOP), "--last", "5s", *shlex.split(options.format(*pids))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.USAGE
    assert re.search(said, done.stderr)


def test_probes_of_profiles_and_traces_at_the_same_places_do_not_disturb_each_other() -> None:
    options = Options(kinds=("block",))
    with Target.start(program("steps")) as steps, LiveSession(options, capacity=1) as live:
        target = live.add(steps.pid)
        assert target.recorded.go
        with TraceRecorder(target.recorded.go, TraceOptions(last_s=60)) as recorder:
            recorder.load()
            live.start(target)
            steps.ask("hand", "done")
            recorder.start()
            before = parks(recorder)
            steps.ask("hand", "done")
            traced = parks(recorder) - before
            live.stop(target)
            steps.ask("hand", "done")
            untraced = parks(recorder) - before - traced
            live.start(target)
            recorder.stop()
            steps.ask("hand", "done")
            after = parks(recorder) - before
        assert counts(live, target, "main.hand")["block"] == 3 * HANDS
    assert HANDS <= traced <= 3 * HANDS
    assert HANDS <= untraced <= 3 * HANDS
    assert after == traced + untraced


def parks(recorder: TraceRecorder) -> int:
    return int(np.count_nonzero(recorder.recorded().rows["kind"] == PARK))
