"""What the time of a goroutine depended on, in timelines with known truth."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from ebpfprof.export.tables.paths import path_finding, render_path
from ebpfprof.profile.waiting_for import OpenFile
from ebpfprof.timeline.choices import between, chosen
from ebpfprof.timeline.critical import Chain, Chains
from ebpfprof.timeline.events import EventKind
from ebpfprof.timeline.model import Timeline, WaitObject
from ebpfprof.timeline.parts import Did, GoroutinePart, Parts, parts
from ebpfprof.timeline.spans import spans
from ebpfprof.timeline.sweep import NOTHING, START, Chosen, Sweep
from tests.made_up_timeline import Story
from tests.simulated_scheduler import SimulatedScheduler, steps_of, timeline_of_steps

A, B, C = 1, 2, 3
CACHE = WaitObject("main.cache.mu", place="sync.Mutex at 0xc000012340")
FILE = OpenFile(7, "tcp", "10.0.0.2:4711", "10.0.0.1:80")
SOCKET = WaitObject("read from 10.0.0.1:80, here 10.0.0.2:4711 (tcp, fd 7)", FILE)
NAMES = {A: "main.asks", B: "main.holds", C: "main.reads"}
RECEIVE = "chan receive"
MUTEX, LOCK = "sync.Mutex.Lock", ("sync.(*Mutex).Lock", "main.lock")
Readable = dict[tuple[tuple[str, Did], ...], int]


def timeline(end_ns: int = 1200) -> Timeline:
    """A waits from 100 to 1000 for a lock that B has, which waits from 150 to 800 for C's answer;
    C reads from the network until 700, and runs until 800."""
    story = Story(NAMES)
    story.park(100, A, MUTEX, *LOCK, on=CACHE)
    story.park(120, C, "IO wait", "main.read", on=SOCKET)
    story.park(150, B, MUTEX, *LOCK, on=CACHE)
    story.network(700, C, run_ns=710)
    story.wake(800, B, C, run_ns=830)
    story.wake(1000, A, B, run_ns=1050)
    story.park(1200, A, MUTEX, *LOCK)
    return story.timeline(end_ns)


def readable(found: Counter[Chain]) -> Readable:
    sums: Counter[tuple[tuple[str, Did], ...]] = Counter()
    for chain, ns in found.items():
        sums[tuple((link.who.name, link.did) for link in chain)] += ns
    return dict(sums)


def path(of: Timeline, goid: int, begin_ns: int, end_ns: int) -> Readable:
    return readable(Chains(of).path([Chosen(goid, begin_ns, end_ns)]))


ASKS, HOLDS = ("main.asks", Did.FOR_GOROUTINE), ("main.holds", Did.FOR_GOROUTINE)


def test_a_chain_of_waits_is_charged_to_what_each_did() -> None:
    assert path(timeline(1300), A, 0, 1300) == {
        (("main.asks", Did.RUN),): 100 + 150,
        (("main.asks", Did.QUEUE),): 50,
        (ASKS, ("main.holds", Did.RUN)): 50 + 170,
        (ASKS, ("main.holds", Did.QUEUE)): 30,
        (ASKS, HOLDS, ("main.reads", Did.FOR_NETWORK)): 550,
        (ASKS, HOLDS, ("main.reads", Did.QUEUE)): 10,
        (ASKS, HOLDS, ("main.reads", Did.RUN)): 90,
        (("main.asks", Did.GOES_ON),): 100,
    }


def test_others_are_followed_only_while_it_waited() -> None:
    """What B and C did before is theirs."""
    assert path(timeline(), A, 900, 1000) == {(ASKS, ("main.holds", Did.RUN)): 100}


def test_between_two_moments_a_wait_that_continues_is_for_the_one_that_ends_it_later() -> None:
    assert path(timeline(), A, 100, 200) == {
        (ASKS, ("main.holds", Did.RUN)): 50,
        (ASKS, HOLDS, ("main.reads", Did.FOR_NETWORK)): 50,
    }


def test_a_queue_for_a_lock_is_one_link() -> None:
    """Three wait behind each other; those that wait longest are woken first."""
    story = Story(dict.fromkeys((1, 2, 3, 4), "main.works"))
    for at_ns, goid in enumerate((2, 3, 4), 10):
        story.park(at_ns, goid, MUTEX, *LOCK)
    for at_ns, goid in ((100, 2), (200, 3), (300, 4)):
        story.wake(at_ns, goid, goid - 1)
    found = Chains(story.timeline(300)).path([Chosen(4, 0, 300)])
    works = ("main.works", Did.FOR_GOROUTINE)
    assert readable(found) == {
        (("main.works", Did.RUN),): 12,
        (works, ("main.works", Did.RUN)): 288,
    }


def test_a_chain_that_is_too_long_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all of the time is charged."""
    monkeypatch.setattr("ebpfprof.timeline.sweep.LONG_CHAIN", 2)
    story = Story({goid: f"main.work{goid}" for goid in (1, 2, 3, 4)})
    for goid in (2, 3, 4):
        story.park(10, goid, RECEIVE, "main.work")
    for at_ns, goid in ((100, 2), (200, 3), (300, 4)):
        story.wake(at_ns, goid, goid - 1)
    found = path(story.timeline(300), 4, 10, 300)
    assert sum(found.values()) == 290
    assert found[(("main.work4", Did.FOR_GOROUTINE),)] > 0


def test_before_a_goroutine_is_created_its_creator_is_followed() -> None:
    story = Story({A: "main.asks", B: "main.makes"})
    story.park(100, A, "chan receive", "main.ask")
    story.create(400, C, B, "main.made")
    story.wake(900, A, C)
    assert path(story.timeline(900), A, 0, 900) == {
        (("main.asks", Did.RUN),): 100,
        (ASKS, ("main.made", Did.NOT_CREATED), ("main.makes", Did.RUN)): 300,
        (ASKS, ("main.made", Did.RUN)): 500,
    }


def test_assists_stops_and_lost_processors_are_distinguished() -> None:
    story = Story({A: "main.asks", B: "main.holds"})
    story.of_thread(100, EventKind.ASSIST, A)
    story.of_thread(150, EventKind.ASSIST_END, A)
    story.of_thread(200, EventKind.THREAD_OFF, A)
    story.of_thread(260, EventKind.THREAD_ON, A)
    story.of_thread(300, EventKind.YIELD, A)
    story.of_thread(320, EventKind.STOP_WORLD, B, "GC mark termination")
    story.of_thread(390, EventKind.START_WORLD, B)
    story.run(400, A)
    assert path(story.timeline(500), A, 0, 500) == {
        (("main.asks", Did.RUN),): 100 + 50 + 40 + 100,
        (("main.asks", Did.ASSIST),): 50,
        (("main.asks", Did.NO_PROCESSOR),): 60,
        (("main.asks", Did.QUEUE),): 20 + 10,
        (("main.asks", Did.STOPPED),): 70,
    }


def test_what_ended_a_wait_is_reported() -> None:
    """The network, though a goroutine looked for it; a timer; the garbage collector."""
    story = Story({A: "main.asks", B: "main.holds"})
    story.park(10, A, "IO wait", "main.read")
    story.network(20, A, by=B)
    story.park(20, A, "select", "main.choose")
    story.timer(50, A)
    story.park(50, A, "GC assist wait", "main.make")
    story.wake(90, A, B)
    assert path(story.timeline(90), A, 10, 90) == {
        (("main.asks", Did.FOR_NETWORK),): 10,
        (("main.asks", Did.FOR_TIMER),): 30,
        (("main.asks", Did.FOR_COLLECTOR),): 40,
    }


@pytest.mark.parametrize(
    ("what", "goids"), [("G2", [B]), ("main.asks", [A]), ("main.none", []), ("G99", [])]
)
def test_goroutines_are_chosen_by_id_and_function(what: str, goids: list[int]) -> None:
    assert [each.goid for each in chosen(timeline(), what)] == goids


def test_main_main_is_the_first_goroutine() -> None:
    """The runtime calls it there."""
    story = Story({A: "runtime.main", B: "main.holds"})
    story.park(10, A, RECEIVE, "main.main")
    story.park(20, B, RECEIVE, "main.hold")
    found = story.timeline(100)
    assert [each.goid for each in chosen(found, "main.main")] == [A]
    assert chosen(found, "main.main") == chosen(found, "runtime.main")


def test_times_are_cut_to_what_lies_between_two_moments() -> None:
    times = [Chosen(A, 0, 100), Chosen(B, 100, 200), Chosen(C, 150, 400)]
    assert between(times, 120, 300) == [Chosen(B, 120, 200), Chosen(C, 150, 300)]


class First:
    """A walk that remembers the goroutine with which a chain began."""

    def __init__(self, owners: list[int]) -> None:
        self.owners = owners

    def after(self, state: int, link: int) -> int:
        return self.owners[link] if state == START else state


@pytest.mark.parametrize("seed", range(8))
def test_the_sums_are_those_of_looking_at_each_moment(seed: int) -> None:
    """In schedules that chance decides, with each goroutine's parts as links of their own."""
    world = SimulatedScheduler(Random(seed))
    steps, _ = steps_of(world.run(1500), world.known)
    found = parts(timeline_of_steps(steps, world.now_ns))
    owners: list[int] = []
    links: dict[int, list[int]] = {}
    for goid, of in found.of.items():
        links[goid] = list(range(len(owners), len(owners) + len(of)))
        owners += [goid] * len(of)
    everyone = [Chosen(goid, of[0].begin_ns, of[-1].end_ns) for goid, of in found.of.items()]
    sweep = Sweep(found, links, lambda goid: len(owners))
    sums = sweep.sums(everyone, First([*owners, 0]))
    by_goid: dict[int, Counter[int]] = {each.goid: Counter() for each in everyone}
    for (state, link), ns in sums.items():
        if state == START:
            by_goid[owners[link]][link] += ns
        else:
            by_goid[state][link] += ns
    times = sorted({time for of in found.of.values() for part in of for time in part[:2]})
    wanted: dict[int, Counter[int]] = {each.goid: Counter() for each in everyone}
    at: dict[int, int] = dict.fromkeys(found.of, 0)
    for begin_ns, end_ns in pairwise(times):
        now: dict[int, int | None] = {}
        for goid, of in found.of.items():
            while at[goid] < len(of) and of[at[goid]].end_ns <= begin_ns:
                at[goid] += 1
            is_there = at[goid] < len(of) and of[at[goid]].begin_ns <= begin_ns
            now[goid] = at[goid] if is_there else None
        for goid, number in now.items():
            if number is not None:
                last = _end_of_chain(found, links, now, goid)
                wanted[goid][last] += end_ns - begin_ns
    assert {goid: +of for goid, of in by_goid.items()} == wanted
    assert sum(of.total() for of in wanted.values()) == sum(
        span.length_ns for span in spans(timeline_of_steps(steps, world.now_ns))
    )
    assert any(part.waker and len(of) > 5 for of in found.of.values() for part in of)


def _end_of_chain(
    found: Parts, links: dict[int, list[int]], now: dict[int, int | None], goid: int
) -> int:
    number = now[goid]
    while number is not None:
        part: GoroutinePart = found.of[goid][number]
        if not part.waker:
            return links[goid][number]
        goid = part.waker
        number = now[goid]
        while number is None and goid in found.creators:
            goid = found.creators[goid]
            number = now[goid]
    return NOTHING


def test_the_table_is_a_tree_of_who_waited_for_whom() -> None:
    found = timeline()
    sums = Chains(found).path(chosen(found, "main.asks"))
    text = render_path(sums, width=80, color=False)
    lines = [line[line.index("%") + 3 :] for line in text.splitlines()[1:5]]
    assert lines == [
        "sync.Mutex.Lock main.cache.mu in main.lock",
        "  held by main.holds: sync.Mutex.Lock main.cache.mu in main.lock",
        "    held by main.reads: network 10.0.0.1:80 in main.read",
        "    held by main.reads: ran",
    ]
    assert max(map(len, text.splitlines())) <= 80
    assert path_finding(sums) == (
        "46 % of that time it waited for main.cache.mu (sync.Mutex.Lock), held by main.holds, "
        "which waited for main.cache.mu (sync.Mutex.Lock), held by main.reads, which waited for "
        "the network (10.0.0.1:80)."
    )


def test_a_lock_without_a_name_makes_no_rows_of_its_own() -> None:
    story = Story({A: "main.asks", B: "main.holds"})
    for number in range(2):
        lock = WaitObject(f"sync.Mutex at {number:#x}", is_named=False)
        story.park(100 * number + 10, A, MUTEX, *LOCK, on=lock)
        story.wake(100 * number + 100, A, B)
    sums = Chains(story.timeline(200)).path([Chosen(A, 10, 200)])
    text = render_path(sums, width=80, color=False)
    assert sum("sync.Mutex.Lock in main.lock" in line for line in text.splitlines()) == 1
