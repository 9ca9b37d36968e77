"""Helper and holders are killed while probes are attached or detached: no breakpoint stays."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from tests.builds import in_full
from tests.kernel.detach_loop import ATTACH, WAYS
from tests.kernel.kernel_state import (
    BREAKPOINT,
    await_no_probes,
    descendants,
    holders,
    leaked_probes,
    probed,
)
from tests.kernel.programs import program
from tests.kernel.unharmed import await_ended, check
from tests.recorder import Recorder
from tests.server.serving import Server, await_probes
from tests.targets_run import Target

pytestmark = pytest.mark.alone

KILLS = [4, *in_full(60)]
# Longer than it takes to detach them.
WITHIN_S = 0.15
ATTACHES_WITHIN_S = 0.03
# Of the profiler, its helper, and those that hold probes: which are killed, at once.
KILLED = {
    "all": slice(None),
    "the profiler and its helper": slice(2),
    "its helper and the holders": slice(1, None),
    "the holders": slice(2, None),
}


@pytest.fixture
def target() -> Iterator[Target]:
    """A program that checks itself all the time, under load."""
    with Target.start(program("checker")) as running:
        yield running
        check(running)


@pytest.fixture
def detaching(target: Target) -> Iterator[Target]:
    """What puts probes into the target and detaches them (tests/kernel/detach_loop.py)."""
    python = Path(sys.executable)
    arguments = ("-m", "tests.kernel.detach_loop", str(target.pid))
    with Target.start(python, *arguments, ready=None) as running:
        yield running


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("way", WAYS)
def test_processes_killed_while_detaching_leave_no_breakpoint(
    way: str, kills: int, target: Target, detaching: Target
) -> None:
    before = leaked_probes()
    moments = random.Random(way)
    for which in itertools.islice(itertools.cycle(KILLED.values()), kills):
        _, *numbers = detaching.ask(way, "in ").split()
        profiler, *places = map(int, numbers)
        assert len(probed(target.pid)) == len(places) + 1  # and the anchor
        family = [profiler, *descendants(profiler)]
        detaching.say("now")
        if moments.random() < 0.5:
            await_first_gone(target.pid, places)
        time.sleep(moments.uniform(0, WITHIN_S))
        kill(family[which])
        kill([profiler])
        detaching.expect("gone")
        await_all_ended(family)
        await_no_probes(target.pid)  # the anchor's holder may have been started meanwhile
    assert leaked_probes() == before


@pytest.mark.parametrize("kills", KILLS)
def test_processes_killed_while_attaching_leave_no_breakpoint(
    kills: int, target: Target, detaching: Target
) -> None:
    """The kernel's log is not quiet then: it also reports probes that could not be attached."""
    moments = random.Random(kills)
    for which in itertools.islice(itertools.cycle(KILLED.values()), kills):
        profiler = int(detaching.ask(ATTACH, "in ").split()[1])
        detaching.say("now")
        time.sleep(moments.uniform(0, ATTACHES_WITHIN_S))
        family = [profiler, *descendants(profiler)]
        kill(family[which])
        kill([profiler])
        detaching.expect("gone")
        await_all_ended(family)
        await_no_probes(target.pid)  # a holder may have been started meanwhile


@contextmanager
def attached(target: Target, folder: Path, *arguments: str) -> Iterator[Recorder]:
    """A recording of the target that has begun."""
    recorder = Recorder(["--pid", str(target.pid), *arguments], folder)
    try:
        recorder.wait_until_recording()
        yield recorder
    finally:
        recorder.close()


@contextmanager
def served(target: Target) -> Iterator[Server]:
    """A server that records the target for a request of a second."""
    with Server("--pid", str(target.pid)) as server:
        asking = threading.Thread(target=answerless, args=(server,))
        asking.start()
        await_probes(target.pid, True)
        yield server
    asking.join()


def answerless(server: Server) -> None:
    with suppress(OSError):  # the server is killed meanwhile
        server.get("/debug/pprof/block?seconds=1")


Ended = tuple[
    Callable[[Target, Path], AbstractContextManager[Recorder | Server]],
    signal.Signals | None,
    tuple[float, float],
]
# What ends the recording, and after how many seconds the kill comes.
ENDS: dict[str, Ended] = {
    "its time": (lambda t, to: attached(t, to, "--duration", "0.3"), None, (0.25, 0.55)),
    "SIGINT": (attached, signal.SIGINT, (0, 0.3)),
    "SIGTERM": (attached, signal.SIGTERM, (0, 0.4)),
    "a window's close": (lambda t, to: attached(t, to, "--max-overhead", "0.5"), None, (0, 1)),
    "an answer of serve": (lambda t, _: served(t), None, (0.9, 1.3)),
    "SIGHUP to serve": (lambda t, _: served(t), signal.SIGHUP, (0, 0.3)),
}

OFTEN = ("a window's close",)  # the others are alike, and take longer


@pytest.mark.parametrize(
    ("end", "kills"),
    [
        *(pytest.param(end, 2, marks=[pytest.mark.full] * (end not in OFTEN)) for end in ENDS),
        *in_full(*((end, 60) for end in ENDS)),
    ],
)
def test_processes_killed_while_recordings_end_leave_no_breakpoint(
    end: str, kills: int, target: Target, tmp_path: Path
) -> None:
    begins, number, (least_s, most_s) = ENDS[end]
    before = leaked_probes()
    moments = random.Random(end)
    for which in itertools.islice(itertools.cycle(list(KILLED.values())[:2]), kills):
        with begins(target, tmp_path) as profiler:
            if number:
                profiler.send(number)
            time.sleep(moments.uniform(least_s, most_s))
            family = [profiler.pid, *holders(profiler.pid)]
            kill(family[which])
        await_all_ended(family)
        await_no_probes(target.pid)  # a holder may have been started meanwhile
    assert leaked_probes() == before


def await_first_gone(pid: int, places: Sequence[int]) -> None:
    """Wait until the first of the probes is not there any more."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while all(os.pread(memory.fileno(), 1, place)[0] == BREAKPOINT for place in places):
            pass


def await_all_ended(family: Sequence[int]) -> None:
    """Wait until they have ended, but for the first, which is another process's child."""
    for pid in family[1:]:
        await_ended(pid)


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it may have ended
            os.kill(pid, signal.SIGKILL)
