"""Our traces against Go's own of the same seconds: what each goroutine did, and who woke it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ebpfprof.export.timelines import go_trace
from ebpfprof.process.process import Target as Process
from ebpfprof.timeline.model import Timeline
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of
from tests.builds import VERSIONS, in_full, versions
from tests.differential.go_trace import WAITING, Transition, transitions
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target
from tests.toolchains import toolchain

SECONDS = 1.0
EDGES = 4  # changes at both ends, where one of the recordings may have begun or ended
ENOUGH = 12  # changes of a goroutine to compare
COROUTINE = "coroutine"  # Go's tracer has no reason for the waits of coroutines
LONG_NS = 20_000
CANDIDATES = 12
INTERRUPTED_NS = 3_000
FITS = 4
WITHOUT_CLOCK = VERSIONS[: VERSIONS.index("1.22")]
ENOUGH_NS = 1_000_000


@dataclass(frozen=True)
class Change:
    """What a goroutine did next: comparable, so without the time."""

    before: str
    state: str
    reason: str
    by: int


Sequences = dict[int, list[Transition]]


def traced(
    work: str, minor: str, folder: Path, *, exact: bool = False, mode: str = "plain"
) -> tuple[Timeline, Path]:
    """Our timeline of a work, and the file with Go's."""
    theirs = folder / "go.trace"
    with (
        Target.start(program("traced", minor, mode)) as target,
        Process(target.pid) as process,
    ):
        go = inspect(process)
        with TraceRecorder(go, TraceOptions(exact_starts=exact)) as recorder:
            recorder.load()
            target.ask(f"trace {theirs} {work}", "begun")
            recorder.start()
            recorder.record(SECONDS, lambda gone_s: False)
            recorder.stop()
            target.ask("end", "ended")
            timeline = timeline_of(recorder.recorded())
        target.kill()
    return timeline, theirs


def sequences(path: Path) -> Sequences:
    """All changes by goroutine, as the tool replays them."""
    text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", path)
    found: Sequences = defaultdict(list)
    for transition in transitions(text.splitlines()):
        if not transition.is_same and transition.before != "Undetermined":
            found[transition.goid].append(transition)
    return found


def ours(timeline: Timeline, folder: Path) -> Sequences:
    path = folder / "ours.trace"
    path.write_bytes(go_trace.encode(timeline))
    return sequences(path)


Timed = list[tuple[Change, int]]
"""Changes with their times in ns."""


def without_calls(changes: Iterable[Transition]) -> Timed:
    """Short system calls are only in Go's trace: a goroutine in one counts as running."""
    found: Timed = []
    came_back = False
    for each in changes:
        if each.state == "Syscall":
            continue
        if each.before == "Syscall":
            came_back = each.state == "Runnable"
            continue
        if came_back and (each.before, each.state) == ("Runnable", "Running"):
            came_back = False
            continue
        is_woken = (each.before, each.state) == (WAITING, "Runnable")
        reason = each.reason.replace(COROUTINE, "")
        change = Change(each.before, each.state, reason, each.by if is_woken else -1)
        found.append((change, each.time_ns))
    return found


def same_part(part: Timed, whole: Timed, *, has_clock: bool = True) -> Timed | None:
    """The part of the whole with the same changes at the same time; None if there is none.

    Times of Go up to 1.21 begin with the trace: without a clock, it is the part whose times
    differ most evenly.
    """
    size, wanted = len(part), [change for change, _ in part]
    changes = [change for change, _ in whole]
    places: Sequence[int] = range(len(whole) - size + 1)
    if has_clock:
        nearest = sorted(places, key=lambda at: abs(whole[at][1] - part[0][1]))
        places = nearest[:CANDIDATES]
    same = [whole[at : at + size] for at in places if changes[at : at + size] == wanted]
    if has_clock:
        return next(iter(same), None)
    return min(same, key=lambda found: unevenness(part, found), default=None)


def unevenness(part: Timed, whole: Timed) -> float:
    """By how much the distances of times differ, of most of them."""
    ahead = np.array([our - their for (_, our), (_, their) in zip(part, whole, strict=True)])
    return float(np.median(np.abs(ahead - np.median(ahead))))


Pairs = list[tuple[int, Timed, Timed]]
"""Goroutines with their changes in both traces."""


def on_our_clock(pairs: Pairs) -> Pairs:
    """The same with Go's times on our clock: a line through what both saw.

    Go up to 1.21 writes ticks since the begin of the trace, and how many there are in a second
    (runtime/trace.go, traceEvFrequency).
    """
    times = [(our, their) for _, a, b in pairs for (_, our), (_, their) in zip(a, b, strict=True)]
    ours, theirs = np.array(times, np.int64).T
    origin = int(theirs[0])
    ahead, near = ours - theirs, np.ones(len(ours), np.bool_)
    for _ in range(FITS):  # the kernel took the processor between both readings of the clock: rare
        line = np.polynomial.Polynomial.fit(theirs[near] - origin, ahead[near], 1)
        apart = np.abs(ahead - line(theirs - origin))
        near = apart <= 2 * np.median(apart)
    assert np.median(apart) < INTERRUPTED_NS
    return [
        (goid, part, [(change, their + round(line(their - origin))) for change, their in whole])
        for goid, part, whole in pairs
    ]


def program_goroutines(timeline: Timeline) -> list[int]:
    return [g.goid for g in timeline.goroutines.values() if g.name.startswith("main.")]


@pytest.mark.parametrize(
    ("work", "minor"),
    [
        ("locks", NEWEST),
        *in_full(*((work, NEWEST) for work in ("channels", "cpu", "network", "sleeps"))),
        # Where threads wait for processors, what the kernel sees of a call is less like Go's.
        pytest.param("syscalls", NEWEST, marks=[pytest.mark.alone, pytest.mark.full]),
        *in_full(*(("locks", minor) for minor in VERSIONS[:-1])),
    ],
)
def test_goroutines_do_what_gos_own_tracer_saw(work: str, minor: str, tmp_path: Path) -> None:
    """The same changes in the same order, with the same reasons and wakers, without exception."""
    check_changes(work, minor, tmp_path)


def check_changes(work: str, minor: str, folder: Path, *, mode: str = "plain") -> None:
    timeline, theirs = traced(work, minor, folder, mode=mode)
    mine, gos = ours(timeline, folder), sequences(theirs)
    compared, wrong = 0, []
    for goid in program_goroutines(timeline):
        part = without_calls(mine.get(goid, ()))[EDGES:-EDGES]
        if len(part) >= ENOUGH:
            compared += 1
            has_clock = minor not in WITHOUT_CLOCK
            if same_part(part, without_calls(gos[goid]), has_clock=has_clock) is None:
                wrong.append(goid)
    assert compared >= (2 if work == "syscalls" else 4)
    assert wrong == []
    assert timeline.comments == ()


@pytest.mark.parametrize("minor", versions("1.22", NEWEST))
def test_goroutines_that_live_for_a_moment_are_whole(minor: str, tmp_path: Path) -> None:
    """Each that began and ended in our trace, from its creation to its end."""
    check_lives("births", minor, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("minor", versions("1.23", NEWEST))
def test_coroutines_hand_over(minor: str, tmp_path: Path) -> None:
    check_lives("coroutines", minor, tmp_path)


def check_lives(work: str, minor: str, folder: Path) -> None:
    timeline, theirs = traced(work, minor, folder)
    mine, gos = ours(timeline, folder), sequences(theirs)
    begun = [goid for goid, found in mine.items() if found[0].before == "NotExist"]
    whole = [goid for goid in begun if mine[goid][-1].state == "NotExist"]
    assert len(whole) > 200
    for goid in whole:
        ours_say = [change for change, _ in without_calls(mine[goid])]
        gos_say = [change for change, _ in without_calls(gos[goid])]
        assert ours_say == gos_say, f"goroutine {goid}"


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize(
    ("work", "minor"),
    [
        ("locks", NEWEST),
        *in_full(("channels", NEWEST), ("sleeps", NEWEST)),
        *in_full(*(("locks", minor) for minor in WITHOUT_CLOCK)),
    ],
)
def test_times_in_each_state_are_gos(work: str, minor: str, tmp_path: Path) -> None:
    """With the probe where goroutines begin to run: 2 % of sums of what lasted 20 us and more.

    Go's tracer reads its clock about 0.6 us after ours, but where the kernel takes the processor in
    between: such times say nothing of either, and there are few.
    """
    timeline, theirs = traced(work, minor, tmp_path, exact=True)
    mine, gos = ours(timeline, tmp_path), sequences(theirs)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    counted = interrupted = 0
    has_clock = minor not in WITHOUT_CLOCK
    pairs: Pairs = []
    for goid in program_goroutines(timeline):
        part = without_calls(mine.get(goid, ()))[EDGES:-EDGES]
        if len(part) < ENOUGH:
            continue
        whole = same_part(part, without_calls(gos[goid]), has_clock=has_clock)
        assert whole is not None
        pairs.append((goid, part, whole))
    for goid, part, whole in pairs if has_clock else on_our_clock(pairs):
        for (begun, our_begin), (_, our_end), (_, begin), (_, end) in zip(
            part, part[1:], whole, whole[1:], strict=False
        ):
            if end - begin < LONG_NS:
                continue
            counted += 1
            if max(begin - our_begin, end - our_end) > INTERRUPTED_NS:
                interrupted += 1
                continue
            both = sums[timeline.goroutines[goid].name, begun.state]
            both[0] += our_end - our_begin
            both[1] += end - begin
    large = {key: both for key, both in sums.items() if both[1] > ENOUGH_NS}
    wrong = {key: both for key, both in large.items() if abs(both[0] - both[1]) > 0.02 * both[1]}
    assert wrong == {}
    assert len(large) >= 2
    assert interrupted < 0.25 * counted
