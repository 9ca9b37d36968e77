"""What the time of a goroutine depended on, in timelines with known truth."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from ebpfprof.export.tables.paths import render_path, render_wakes
from ebpfprof.profile.model import Frame
from ebpfprof.profile.waiting_for import OpenFile
from ebpfprof.timeline.critical import CriticalPaths, Link
from ebpfprof.timeline.events import Event, EventKind, Known
from ebpfprof.timeline.model import StackCall, Timeline, TimelineGoroutine, WaitObject
from ebpfprof.timeline.replay import Replay
from ebpfprof.timeline.spans import spans
from tests.simulated_scheduler import SimulatedScheduler, steps_of, timeline_of_steps

PARK, READY, RUN = EventKind.PARK, EventKind.READY, EventKind.RUN
A, B, C = 1, 2, 3
NAMES = {A: "main.asks", B: "main.holds", C: "main.reads"}
LOCK, READ = 11, 12  # stacks
FILE = OpenFile(7, "tcp", "10.0.0.2:4711", "10.0.0.1:80")
CACHE, SOCKET = 21, 22  # what they wait for


def event(at_ns: int, kind: EventKind, goid: int, tid: int, by: int = 0, stack: int = 0) -> Event:
    word = {LOCK: "sync.Mutex.Lock", READ: "IO wait"}.get(stack, "")
    on = {LOCK: CACHE, READ: SOCKET}.get(stack, 0) if kind is PARK else 0
    return Event(at_ns, kind, goid, by, stack, tid, tid, word=word, on=on)


def timeline() -> Timeline:
    """A waits from 100 to 1000 for a lock that B has, which waits from 150 to 800 for C's answer;
    C reads from the network until 700, and runs until 800."""
    events = [
        event(0, RUN, A, 0),
        event(0, RUN, B, 1),
        event(0, RUN, C, 2),
        event(100, PARK, A, 0, A, LOCK),
        event(120, PARK, C, 2, C, READ),
        event(150, PARK, B, 1, B, LOCK),
        event(700, EventKind.NET_READY, C, 3),
        event(710, RUN, C, 2),
        event(800, READY, B, 2, C, LOCK),
        event(830, RUN, B, 1),
        event(1000, READY, A, 1, B, LOCK),
        event(1050, RUN, A, 0),
        event(1200, PARK, A, 0, A, LOCK),
    ]
    known = {goid: Known(goid, 0, "runnable", "", 0, 0, 0, 0, 0) for goid in NAMES}
    replay = Replay(0, known)
    for each in events:
        replay.take(each)
    calls = {
        LOCK: (
            StackCall(1, Frame("sync.(*Mutex).Lock", "", 1)),
            StackCall(2, Frame("main.lock", "", 1)),
        ),
        READ: (StackCall(3, Frame("main.read", "", 1)),),
    }
    goroutines = {
        goid: TimelineGoroutine(goid, StackCall(9, Frame(name, "", 1)), None, 0)
        for goid, name in NAMES.items()
    }
    objects = {
        CACHE: WaitObject("main.cache.mu", place="sync.Mutex at 0xc000012340"),
        SOCKET: WaitObject("read from 10.0.0.1:80, here 10.0.0.2:4711 (tcp, fd 7)", FILE),
    }
    return Timeline(
        *(1, "t", "go1.27", 0, 1200, 0, replay.taken(), calls, goroutines, {}, {}, {}),
        objects=objects,
    )


def test_a_chain_of_waits_is_charged_to_what_each_did() -> None:
    found = CriticalPaths(timeline()).path([(A, 0, 1200)])
    by_names = {tuple((link.goid, link.what) for link in chain): ns for chain, ns in found.items()}
    lock = (A, "sync.Mutex.Lock")
    assert by_names == {
        ((A, "running"),): 100 + 150,
        ((A, "runnable"),): 50,
        (lock, (B, "running")): 50 + 170,
        (lock, (B, "runnable")): 30,
        (lock, (B, "sync.Mutex.Lock"), (C, "IO wait")): 550,
        (lock, (B, "sync.Mutex.Lock"), (C, "runnable")): 10,
        (lock, (B, "sync.Mutex.Lock"), (C, "running")): 90,
    }


def test_others_are_followed_only_while_it_waited() -> None:
    """What B and C did before is theirs."""
    found = CriticalPaths(timeline()).path([(A, 900, 1000)])
    assert found == {(Link(A, "sync.Mutex.Lock", LOCK, CACHE), Link(B, "running", 0)): 100}


def test_a_wait_that_goes_on_is_a_wait() -> None:
    found = CriticalPaths(timeline()).path([(A, 100, 500)])
    assert found == {(Link(A, "sync.Mutex.Lock", LOCK, CACHE),): 400}


@pytest.mark.parametrize(
    ("what", "goids"), [("G2", [B]), ("main.asks", [A]), ("main.none", []), ("G99", [])]
)
def test_goroutines_are_chosen_by_id_and_function(what: str, goids: list[int]) -> None:
    assert [goid for goid, _, _ in CriticalPaths(timeline()).chosen(what)] == goids


@pytest.mark.parametrize("seed", range(10))
def test_each_moment_is_charged_once(seed: int) -> None:
    world = SimulatedScheduler(Random(seed))
    steps, _ = steps_of(world.run(4000), world.known)
    simulated = timeline_of_steps(steps, world.now_ns)
    lengths: dict[int, int] = {}
    for span in spans(simulated):
        lengths[span.goid] = lengths.get(span.goid, 0) + span.length_ns
    paths = CriticalPaths(simulated)
    for goid, length_ns in lengths.items():
        assert paths.path(paths.chosen(f"G{goid}")).total() == length_ns


def test_the_tables_name_functions() -> None:
    found = timeline()
    paths = CriticalPaths(found)
    text = render_path(paths.path(paths.chosen("main.asks")), found, width=80, color=False)
    assert "45.8%  main.asks: sync.Mutex.Lock main.cache.mu in main.lock" in text
    assert "for main.holds: sync.Mutex.Lock main.cache.mu in main.lock" in text
    assert "for main.reads: IO wait in main.read" in text
    wakes = render_wakes(found, width=80, color=False)
    assert "main.asks" in wakes
    assert "woken by main.holds" in wakes


def test_a_lock_without_a_name_makes_no_rows_of_its_own() -> None:
    found = timeline()
    lock = WaitObject("sync.Mutex at 0xc000012340", is_named=False)
    found = replace(found, objects={**found.objects, CACHE: lock})
    paths = CriticalPaths(found)
    text = render_path(paths.path(paths.chosen("main.asks")), found, width=80, color=False)
    assert "main.asks: sync.Mutex.Lock in main.lock" in text
