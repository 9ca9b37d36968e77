"""Every stack that Go's readers find in our traces is the stack in Perfetto's file."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from ebpfprof.export.pprof.reader import decode
from ebpfprof.export.timelines import go_trace, perfetto
from ebpfprof.profile.model import Frame
from ebpfprof.timeline.model import KERNEL_FILE, StackCall, Timeline
from tests.builds import versions
from tests.differential.test_execution_trace import traced
from tests.kernel.programs import NEWEST
from tests.simulated_scheduler import SimulatedScheduler, steps_of, timeline_of_steps
from tests.toolchains import toolchain

READERS = ("1.23", "1.24", "1.25", "1.26", "1.27")
PROFILES = ("net", "sync", "sched", "syscall")
NO_WORD = ("1.23",)  # its -d takes a number, 1 for "parsed" (cmd/trace/main.go)
FRAME = re.compile(r"^\t(\S.*) @ 0x[0-9a-f]+\n\t\t(.*):(\d+)$", re.MULTILINE)
STACK = re.compile(r"^(?:Transition)?Stack=\n((?:\t.*\n)+)", re.MULTILINE)


class Call(NamedTuple):
    """A frame as all formats have it."""

    function: str
    file: str
    line: int


Stacks = set[tuple[Call, ...]]


class Recorded(NamedTuple):
    """One recording in Go's format, its stacks, those of them that Perfetto's file has.

    `starts` are the calls that begin goroutines. Perfetto's file has no states of length 0.
    """

    go: Path
    stacks: Stacks
    perfetto: Stacks
    starts: Stacks


def recorded(timeline: Timeline, folder: Path) -> Recorded:
    path = folder / "a.trace"
    path.write_bytes(go_trace.encode(timeline))
    starts = {g.start for g in timeline.goroutines.values() if g.start}
    keys = {step.stack for step in timeline.steps} & timeline.stacks.keys()
    stacks = {tuple(map(call, timeline.stacks[key])) for key in keys}
    of_perfetto = perfetto_stacks(timeline)
    assert of_perfetto <= stacks
    return Recorded(path, stacks, of_perfetto, {(call(start),) for start in starts})


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("locks")
    timeline, _ = traced("locks", NEWEST, folder)
    return recorded(timeline, folder)


def call(of: StackCall) -> Call:
    return Call(of.frame.function, of.frame.file, of.frame.line)


def perfetto_stacks(timeline: Timeline) -> Stacks:
    """Innermost first."""
    trace = Trace()
    trace.ParseFromString(perfetto.encode(timeline))
    functions: dict[int, str] = {}
    files: dict[int, str] = {}
    frames: dict[int, Call] = {}
    stacks: Stacks = set()
    for packet in trace.packet:
        interned = packet.interned_data
        functions |= {name.iid: name.str.decode() for name in interned.function_names}
        files |= {path.iid: path.str.decode() for path in interned.source_paths}
        for frame in interned.frames:
            names = functions[frame.function_name_id], files[frame.source_path_iid]
            frames[frame.iid] = Call(*names, frame.line_number)
        stacks |= {
            tuple(frames[iid] for iid in reversed(callstack.frame_ids))
            for callstack in interned.callstacks
        }
    return stacks


def parsed_stacks(path: Path, minor: str) -> Stacks:
    """The stacks of all events that the tool replays."""
    text = toolchain(minor).go("tool", "trace", "-d=1" if minor in NO_WORD else "-d=parsed", path)
    return {
        tuple(Call(function, file, int(line)) for function, file, line in FRAME.findall(stack))
        for stack in STACK.findall(text)
    }


def profiled_stacks(path: Path, kind: str, minor: str) -> Stacks:
    """The stacks of a profile that the tool makes of a trace."""
    go = toolchain(minor)
    done = subprocess.run(
        [go.goroot / "bin" / "go", "tool", "trace", f"-pprof={kind}", path],
        env=go.environment(),
        capture_output=True,
        check=True,
    )
    return {
        tuple(Call(frame.function, frame.file, frame.line) for frame in sample.frames)
        for sample in decode(done.stdout).samples
    }


@pytest.mark.parametrize("minor", versions(*READERS))
def test_the_tool_s_stacks_are_perfetto_s(minor: str, locks: Recorded) -> None:
    """Also where Mutex.Lock is inlined into a goroutine's function."""
    found = parsed_stacks(locks.go, minor)
    assert found - locks.starts <= locks.stacks
    assert locks.perfetto <= found
    functions = {tuple(each.function for each in stack) for stack in found}
    assert any(
        {"internal/sync.(*Mutex).lockSlow", "sync.(*Mutex).Lock", "main.lock"} < set(stack)
        for stack in functions
    )


@pytest.mark.parametrize("minor", versions(*READERS))
def test_stacks_of_its_profiles_are_perfetto_s(minor: str, locks: Recorded) -> None:
    stacks = {kind: profiled_stacks(locks.go, kind, minor) for kind in PROFILES}
    assert set().union(*stacks.values()) <= locks.stacks | locks.starts | {()}
    assert any("main.lock" in {each.function for each in stack} for stack in stacks["sync"])


@pytest.mark.parametrize("minor", versions(*READERS))
def test_calls_at_one_address_stay_apart(minor: str, tmp_path: Path) -> None:
    """As inlined calls in C do, or functions of the kernel that have no name."""
    random = Random(1)
    world = SimulatedScheduler(random)
    steps, _ = steps_of(world.run(500), world.known)
    simulated = timeline_of_steps(steps, world.now_ns)
    ends = (
        StackCall(0x1010, Frame("main.inlined", "/src/main.go", 5, 5), 0x1010),
        StackCall(0x1010, Frame("main.outer", "/src/main.go", 7, 5), 0x1010),
    )
    kernel = StackCall(0x1011, Frame("do_nanosleep", KERNEL_FILE, 0), 0x1011)
    stacks = {3: (kernel, *ends), 7: ends[1:]}
    found = recorded(replace(simulated, stacks=stacks), tmp_path)
    assert parsed_stacks(found.go, minor) - found.starts == found.perfetto == found.stacks
    assert len(found.stacks) == 2
