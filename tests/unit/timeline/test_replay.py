"""What a replay makes of events, also of those that do not tell all."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ebpfprof.timeline.events import NO_P, Event, EventKind, Known
from ebpfprof.timeline.replay import Replay
from ebpfprof.timeline.sampled_goroutines import NOT_RECORDED
from ebpfprof.timeline.steps import NO_THREAD, StepKind, TraceStep
from tests.simulated_scheduler import BEGIN_NS, SimulatedScheduler, steps_of

PARK, READY, RUN = EventKind.PARK, EventKind.READY, EventKind.RUN
OFF, ON = EventKind.THREAD_OFF, EventKind.THREAD_ON


def waiting(*goids: int) -> dict[int, Known]:
    return {goid: Known(goid, 0, "waiting", "select", 5, 9, 0, 0, 0) for goid in goids}


def event(at_ns: int, kind: EventKind, goid: int = 0, **more: Any) -> Event:  # noqa: ANN401 - Event's fields
    """An event of thread 1 with P 0; where goroutines stop, they are the thread's own."""
    by = goid if kind in (PARK, EventKind.EXIT, EventKind.YIELD) else 0
    return Event(at_ns, kind, goid, by, tid=1, p=0)._replace(**more)


def replayed(events: list[Event], known: dict[int, Known] | None = None) -> list[TraceStep]:
    replay = Replay(0, known or {})
    for each in events:
        replay.take(each)
    return replay.taken()


def changes(steps: list[TraceStep], *kinds: StepKind) -> list[tuple[int, StepKind, int]]:
    return [(step.at_ns, step.kind, step.goid) for step in steps if step.kind in kinds]


GOROUTINES = (
    StepKind.IS,
    StepKind.UNBLOCK,
    StepKind.START,
    StepKind.STOP,
    StepKind.BLOCK,
    StepKind.DESTROY,
    StepKind.SYSCALL,
    StepKind.SYSCALL_END,
    StepKind.SYSCALL_LOST,
)


def test_a_goroutine_ran_since_the_thread_had_the_last_one() -> None:
    steps = replayed([event(10, PARK, 1), event(15, READY, 2), event(30, PARK, 2)], waiting(2))
    assert changes(steps, *GOROUTINES)[3:] == [
        (0, StepKind.IS, 2),
        (15, StepKind.UNBLOCK, 2),
        (15, StepKind.START, 2),
        (30, StepKind.BLOCK, 2),
    ]


def test_or_since_the_thread_got_a_processor() -> None:
    events = [event(10, READY, 2), event(12, OFF, tid=2, p=NO_P), event(20, ON, tid=2)]
    steps = replayed([*events, event(30, PARK, 2, tid=2)], waiting(2))
    assert (20, StepKind.START, 2) in changes(steps, StepKind.START)


def test_the_probe_where_it_begins_to_run_is_exact() -> None:
    steps = replayed([event(10, READY, 2), event(25, RUN, 2), event(30, PARK, 2)], waiting(2))
    starts = [step for step in steps if step.kind is StepKind.START]
    assert [(step.at_ns, step.is_inferred) for step in starts] == [(25, False)]


def test_a_wait_of_before_has_its_stack_if_it_is_the_same_wait() -> None:
    same = replayed([event(10, READY, 2, more=9)], waiting(2))
    other = replayed([event(10, READY, 2, more=10, word="chan send")], waiting(2))
    assert (same[0].kind, same[0].stack) == (StepKind.IS, 5)
    assert (other[0].word, other[0].stack) == ("chan send", 0)


def test_a_park_that_fails_ends_at_once() -> None:
    steps = replayed([event(10, PARK, 1), event(40, PARK, 1)])
    assert changes(steps, StepKind.UNBLOCK, StepKind.START)[1:] == [
        (10, StepKind.UNBLOCK, 1),
        (10, StepKind.START, 1),
    ]


def test_a_thread_may_lose_its_processor_while_its_goroutine_parks() -> None:
    events = [event(10, PARK, 1), event(11, OFF, 1, is_made=True), event(20, ON)]
    steps = replayed([*events, event(30, READY, 1)])
    assert changes(steps, StepKind.BLOCK, StepKind.UNBLOCK) == [
        (10, StepKind.BLOCK, 1),
        (30, StepKind.UNBLOCK, 1),
    ]


def test_a_p_that_another_thread_has_was_given_up() -> None:
    steps = replayed([event(10, PARK, 1), event(30, PARK, 2, tid=2)], waiting(2))
    found = [(step.at_ns, step.kind, step.tid) for step in steps if "P_" in step.kind.name]
    assert found == [
        (0, StepKind.P_RUNS, 1),
        (10, StepKind.P_STOP, 1),
        (10, StepKind.P_START, 2),
    ]


def test_a_system_call_that_blocks_begins_and_ends_with_the_thread() -> None:
    events = [event(10, OFF, 1, is_exit=True, more=3), event(50, ON), event(60, PARK, 1)]
    assert changes(replayed(events), *GOROUTINES)[-3:] == [
        (10, StepKind.SYSCALL, 1),
        (50, StepKind.SYSCALL_END, 1),
        (60, StepKind.BLOCK, 1),
    ]


def test_a_call_that_sleeps_twice_is_one_call() -> None:
    call = [event(10, OFF, 1, is_exit=True, more=3), event(20, ON)]
    same = [*call, event(21, OFF, 1, is_exit=True, more=3), event(50, ON), event(60, PARK, 1)]
    next_one = [*call, event(25, OFF, 1, is_exit=True, more=4), event(50, ON), event(60, PARK, 1)]
    assert changes(replayed(same), StepKind.SYSCALL) == [(10, StepKind.SYSCALL, 1)]
    assert changes(replayed(next_one), StepKind.SYSCALL, StepKind.SYSCALL_END) == [
        (10, StepKind.SYSCALL, 1),
        (20, StepKind.SYSCALL_END, 1),
        (25, StepKind.SYSCALL, 1),
        (50, StepKind.SYSCALL_END, 1),
    ]


def test_a_call_whose_p_was_stolen_ends_in_the_run_queue() -> None:
    events = [
        event(10, OFF, 1, is_exit=True, more=3),
        event(30, PARK, 2, tid=2),
        event(50, ON),
        event(60, PARK, 1, p=1),
    ]
    steps = replayed(events, waiting(2))
    assert (50, StepKind.SYSCALL_LOST, 1) in changes(steps, StepKind.SYSCALL_LOST)
    steals = [step for step in steps if step.kind is StepKind.P_STEAL]
    assert [(step.p, step.tid, step.other) for step in steals] == [(0, 2, 1)]


def test_a_thread_without_a_goroutine_has_none() -> None:
    """Its wakes are of nobody: a timer's."""
    events = [event(10, READY, 2, by=1), event(20, READY, 3, by=0), event(30, PARK, 1, tid=2, p=1)]
    steps = replayed(events, waiting(2, 3))
    wakes = {step.goid: step.by for step in steps if step.kind is StepKind.UNBLOCK}
    assert wakes == {2: 1, 3: 0}
    assert changes(steps, StepKind.SYSCALL, StepKind.SYSCALL_LOST) == [
        (10, StepKind.SYSCALL, 1),  # in a short system call, which only this tells
        (10, StepKind.SYSCALL_LOST, 1),
    ]


def test_a_goroutine_that_runs_elsewhere_left_in_a_short_system_call() -> None:
    """All other ways to leave a thread are probed."""
    events = [event(10, READY, 2, by=1), event(30, PARK, 1, tid=2, p=1)]
    assert changes(replayed(events, waiting(2)), *GOROUTINES[3:]) == [
        (10, StepKind.SYSCALL, 1),
        (10, StepKind.SYSCALL_LOST, 1),
        (30, StepKind.BLOCK, 1),
    ]


def test_a_thread_off_the_processor_has_lost_its_p_to_one_that_came_later() -> None:
    """It lost its processor within a short system call, and then another thread took its P."""
    replay = Replay(0, waiting(2))
    for each in (
        *(event(10, READY, 2, by=1), event(20, OFF, 1, is_made=True)),
        *(event(25, ON, tid=2, p=NO_P), event(40, OFF, 2, tid=2, is_exit=True, more=1)),
    ):
        replay.take(each)
    assert replay.ignored == 0
    assert changes(replay.taken(), *GOROUTINES[3:])[-2:] == [
        (20, StepKind.SYSCALL, 1),
        (40, StepKind.SYSCALL, 2),
    ]


def test_a_p_that_runs_another_goroutine_is_not_that_of_a_call() -> None:
    """It was taken before the thread slept; the runtime notes the last one that it had."""
    replay = Replay(0, waiting(2))
    for each in (
        *(event(10, READY, 2, by=1), event(25, ON, tid=2, p=NO_P), event(30, OFF, 1, is_made=True)),
        event(40, OFF, 2, tid=2, is_exit=True, more=1),
    ):
        replay.take(each)
    assert replay.ignored == 1


def test_a_coroutine_hands_over_on_its_thread() -> None:
    events = [event(5, READY, 3, by=1), event(10, EventKind.SWITCH, 1, by=1, more=2)]
    steps = replayed([*events, event(20, EventKind.EXIT, 2)], waiting(3))
    assert changes(steps, StepKind.BLOCK, StepKind.DESTROY, StepKind.START)[1:] == [
        (10, StepKind.BLOCK, 1),
        (10, StepKind.START, 2),
        (20, StepKind.DESTROY, 2),
    ]
    assert [step.by for step in steps if step.kind is StepKind.UNBLOCK and step.goid == 2] == [1]


def test_a_thread_may_lose_its_processor_while_a_coroutine_hands_over() -> None:
    events = [event(10, EventKind.SWITCH, 1, by=1, more=2), event(11, OFF, 1, is_made=True)]
    steps = replayed([*events, event(15, ON), event(20, PARK, 2)])
    assert changes(steps, StepKind.STOP, StepKind.BLOCK) == [
        (10, StepKind.BLOCK, 1),
        (20, StepKind.BLOCK, 2),
    ]


@pytest.mark.parametrize("is_made", [True, False])
def test_a_coroutine_is_created_where_it_begins_and_else_was_there_before(is_made: bool) -> None:
    """Even if it ended before a sample could find it."""
    switch = event(10, EventKind.SWITCH, 1, by=1, more=2, is_made=is_made)
    steps = replayed([switch, event(20, EventKind.EXIT, 2)], waiting(1, 3))
    made = [step for step in steps if step.kind is StepKind.CREATE]
    assert [(step.goid, step.by, step.state) for step in made] == [(2, 1, "waiting")] * is_made
    before = [step.word for step in steps if step.kind is StepKind.IS and step.goid == 2]
    assert before == ["coroutine"] * (not is_made)


def test_the_end_of_a_coroutine_is_reported_once() -> None:
    events = [
        event(10, EventKind.SWITCH, 1, by=1, more=2, is_exit=True),
        event(11, EventKind.EXIT, 1),
        event(20, PARK, 2),
    ]
    steps = replayed(events)
    assert changes(steps, StepKind.DESTROY, StepKind.BLOCK) == [
        (10, StepKind.DESTROY, 1),
        (20, StepKind.BLOCK, 2),
    ]


def test_goroutines_without_events_have_the_state_of_the_sample() -> None:
    known = {
        **waiting(1),
        2: Known(2, 0, "syscall", "", 6, 0, 0, 0, 0, tid=7),
        3: Known(3, 0, "running", "", 0, 0, 0, 0, 0, tid=8, p=2),
        4: Known(4, 0, "runnable", "", 0, 0, 0, 0, 0),
    }
    replay = Replay(0, known)
    replay.end(100)
    steps = replay.taken()
    assert [(s.goid, s.state, s.tid) for s in steps if s.kind is StepKind.IS] == [
        (1, "waiting", NO_THREAD),
        (2, "syscall", 7),
        (3, "runnable", NO_THREAD),
        (4, "runnable", NO_THREAD),
    ]
    assert [(s.goid, s.tid, s.p) for s in steps if s.kind is StepKind.START] == [(3, 8, 2)]


def test_a_pause_shows_nothing_but_waits_that_continue() -> None:
    replay = Replay(0, waiting(2, 3, 4))
    for each in (event(5, READY, 3), event(10, READY, 4), event(20, PARK, 1)):
        replay.take(each)
    replay.pause(30, 90, waiting(1, 2))
    steps = replay.taken()
    words = {step.goid: step.word for step in steps if step.kind is StepKind.BLOCK}
    ends = {step.goid for step in steps if step.kind is StepKind.DESTROY}
    assert words == {1: NOT_RECORDED}  # it parked, with another reason than the sample tells
    assert ends == {3, 4}
    assert [(s.at_ns, s.other) for s in steps if s.kind is StepKind.GAP] == [(30, 90)]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_inferred_where_all_is_seen(seed: int) -> None:
    """But which P a thread has; and no event is left out."""
    world = SimulatedScheduler(Random(seed))
    steps, replay = steps_of(world.run(3000), world.known)
    seen = {StepKind.P_START, StepKind.P_STOP, StepKind.P_STEAL, StepKind.P_RUNS, StepKind.START}
    assert set(replay.inferred) <= seen
    assert replay.ignored == 0
    assert sum(step.kind is StepKind.CREATE for step in steps) == world.next_goid - 21


@pytest.mark.parametrize("seed", range(20))
def test_times_of_a_thread_and_of_a_goroutine_never_go_back(seed: int) -> None:
    random = Random(seed)
    world = SimulatedScheduler(random)
    events = [each for each in world.run(3000) if random.random() > 0.2]
    steps, _ = steps_of(events, world.known)
    for key in ("tid", "goid"):
        last: dict[int, int] = {}
        for step in steps:
            number = getattr(step, key)
            if number:
                assert step.at_ns >= last.get(number, BEGIN_NS)
                last[number] = step.at_ns
