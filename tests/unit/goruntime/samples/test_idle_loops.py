"""Which goroutines are idle by what samples show, held against goroutines that are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, Unpack

import numpy as np

from ebpfprof.goruntime.goroutines.fields import wait_of
from ebpfprof.goruntime.samples import idle_loops
from ebpfprof.goruntime.samples.idle_loops import IdleLoops
from ebpfprof.goruntime.samples.state_sums import GoroutineState
from ebpfprof.goruntime.waits.wait_causes import WaitCause

MS: Final = 1_000_000
APART: Final = 10 * MS
WAITING, RUNNING = 4, 2
BEAT: Final = GoroutineState("select", (1, 2), 9, ())
OTHER: Final = GoroutineState("chan receive", (3, 4), 9, ())
AWAY: Final = GoroutineState("running", (), 9, ())


class Fields(TypedDict, total=False):
    """Those of a WaitCause."""

    ends_ns: int
    period_ns: int
    signals: bool
    others: bool
    sends: bool


@dataclass
class Program:
    """Goroutines by number: the state, the wait, and what can wake each."""

    states: list[GoroutineState | None] = field(default_factory=list)
    goids: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    causes: dict[int, WaitCause] = field(default_factory=dict)
    now_ns: int = 1_000 * MS
    watch: IdleLoops = field(init=False)
    read_ns: list[int] = field(default_factory=list)
    _before: list[tuple[GoroutineState | None, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        reader: Any = self
        self.watch = IdleLoops(reader)

    def read(self, addresses: Iterable[int]) -> dict[int, WaitCause]:
        """As CauseReader does; addresses are numbers here."""
        self.read_ns.append(self.now_ns)
        return {
            at: self.causes[at]._replace(wait=self.wait(at))
            for at in addresses
            if at in self.causes
        }

    def start(self, state: GoroutineState, **cause: Unpack[Fields]) -> int:
        number = len(self.states)
        self.states.append(state)
        self.goids.append(100 + number)
        self.sequences.append(0)
        self.causes[number] = WaitCause(0, **cause)
        return number

    def wait(self, number: int) -> int:
        state = self.states[number]
        if state is None:
            return 0
        status = RUNNING if state is AWAY else WAITING
        return wait_of(status, 9, self.sequences[number] & 0xFF, self.goids[number])

    def move(self, number: int, ends_ns: int = 0) -> None:
        """End its wait, and begin the next one, with a timer that ends then."""
        self.sequences[number] += 1
        self.causes[number] = self.causes[number]._replace(ends_ns=ends_ns)

    def sample(self, times: int = 1) -> None:
        for _ in range(times):
            now = [(state, self.wait(at)) for at, state in enumerate(self.states)]
            before = self._before + [(None, 0)] * (len(now) - len(self._before))
            slots = [at for at, each in enumerate(now) if each != before[at]]
            self.watch.note(
                self.now_ns,
                np.arange(len(now), dtype=np.uint64),
                np.array([wait for _, wait in now], np.uint64),
                slots,
                [before[at][0] for at in slots],
                [now[at][0] for at in slots],
            )
            self._before = now
            self.now_ns += APART


def loop(
    samples: int = 20,
    rounds: int = 10,
    *,
    start: Callable[[Program], object] | None = None,
    **cause: Unpack[Fields],
) -> Program:
    """A goroutine that a timer wakes every that many samples."""
    program = Program()
    each = program.start(BEAT, **cause)
    program.move(each, program.now_ns + samples * APART - MS)
    if start:
        start(program)
    for _ in range(rounds):
        program.sample(samples)
        program.move(each, program.now_ns + samples * APART - MS)
    return program


def idle(program: Program) -> list[str]:
    return [str(behaviour) for behaviour in program.watch.behaviours().values()]


TIMED: Final = ["one goroutine that waited nearly all of the time for a timer"]


def test_a_loop_of_a_timer_is_idle() -> None:
    assert idle(loop()) == TIMED
    assert idle(loop(period_ns=20 * APART)) == TIMED


def test_so_is_one_that_others_could_end() -> None:
    assert idle(loop(others=True)) == TIMED
    assert idle(loop(others=True, period_ns=20 * APART)) == TIMED


def test_few_samples_show_nothing() -> None:
    assert idle(loop(samples=3, rounds=3)) == []
    assert idle(loop(samples=9, rounds=1)) == []


def test_ten_samples_show_something() -> None:
    program = Program()
    program.start(BEAT, signals=True)
    program.sample()
    program.now_ns += 1000 * MS
    found = []
    for _ in range(10):
        found.append(len(idle(program)))
        program.sample()
    assert found == [0] * 9 + [1]


def test_what_can_wake_goroutines_is_read_less_often_after_a_second() -> None:
    program = Program()
    program.start(BEAT, signals=True)
    program.sample(400)
    pauses_ns = np.diff(program.read_ns).tolist()
    assert pauses_ns == [100 * MS] * 9 + [500 * MS] * (len(pauses_ns) - 9)
    assert len(pauses_ns) == 9 + 6


def test_a_wait_that_never_ends_is_not_idle() -> None:
    program = Program()
    program.start(BEAT, ends_ns=program.now_ns + 3_600_000 * MS)
    program.start(OTHER, others=True)
    program.sample(200)
    assert idle(program) == []


def test_but_for_a_wait_for_signals_alone() -> None:
    program = Program()
    program.start(BEAT, signals=True)
    program.sample(200)
    assert idle(program) == ["one goroutine that waited nearly all of the time for a signal"]
    program = Program()
    program.start(BEAT, signals=True, others=True)
    program.sample(200)
    assert idle(program) == []


def test_a_timer_that_never_fires_is_a_timeout() -> None:
    program = Program()
    each = program.start(BEAT, ends_ns=program.now_ns + 10_000 * MS, others=True)
    for _ in range(20):
        program.sample(15)
        program.move(each, program.now_ns + 10_000 * MS)
    assert idle(program) == []


def test_a_ticker_is_not_a_reason_if_work_comes_more_often() -> None:
    program = Program()
    each = program.start(BEAT, others=True, period_ns=100 * APART)
    for at in range(100):
        program.sample(5)
        program.move(each, program.now_ns + (100 - 5 * at % 100) * APART)
    assert idle(program) == []


def test_a_send_is_never_idle() -> None:
    assert idle(loop(others=True, sends=True)) == []


def test_one_that_works_for_long_is_not_idle() -> None:
    program = Program()
    each = program.start(BEAT, ends_ns=program.now_ns + 20 * APART)
    for _ in range(10):
        program.states[each] = BEAT
        program.sample(18)
        program.states[each] = AWAY
        program.sample(2)
        program.move(each, program.now_ns + 18 * APART)
    assert idle(program) == []


def test_goroutines_that_come_and_go_are_not_idle() -> None:
    program = loop()
    program.goids[0] += 50
    program.sample(20)
    assert idle(program) == []


def test_a_young_goroutine_is_not_idle() -> None:
    program = Program()
    program.start(OTHER, others=True)
    program.sample(50)
    each = program.start(BEAT, ends_ns=program.now_ns + 20 * APART)
    for _ in range(10):
        program.sample(20)
        program.move(each, program.now_ns + 20 * APART)
    assert idle(program) == []
    program.now_ns += idle_loops._LONG_LIVED_NS
    program.sample()
    assert idle(program) == TIMED


def test_a_crowd_is_not_idle() -> None:
    def loop_with(number: int) -> Program:
        def start(program: Program) -> None:
            for _ in range(number - 1):
                program.start(BEAT, ends_ns=10**15)

        return loop(start=start)

    most = idle_loops._MAX_MEMBERS
    reported = f"{most} goroutines that waited nearly all of the time for timers"
    assert idle(loop_with(most)) == [reported]
    assert idle(loop_with(most + 1)) == []


def rounds_with_another(delay: int, every: int = 1) -> Program:
    """A loop, and a goroutine with a wait that ends some samples after every few rounds of it."""
    program = Program()
    each = program.start(BEAT, ends_ns=program.now_ns + 20 * APART)
    other = program.start(OTHER, others=True)
    for number in range(20):
        program.sample(20 - delay)
        if delay and number % every == 0:
            program.move(other)
        program.sample(delay)
        program.move(each, program.now_ns + 20 * APART)
        if not delay and number % every == 0:
            program.move(other)
    program.sample(2)
    return program


def test_what_others_wait_for_is_not_idle() -> None:
    assert idle(rounds_with_another(0)) == []
    assert idle(rounds_with_another(0, every=5)) == []


def test_a_loop_that_often_runs_is_not_idle_if_short_waits_end_with_it() -> None:
    def each_five_samples(*, with_waits: bool) -> Program:
        program = Program()
        each = program.start(BEAT, ends_ns=program.now_ns + 5 * APART - MS)
        other = program.start(AWAY)
        for _ in range(40):
            program.sample(4)
            if with_waits:
                program.states[other] = OTHER
                program.move(other)
            program.sample()
            program.states[other] = AWAY
            program.move(each, program.now_ns + 5 * APART - MS)
        program.sample()
        return program

    assert idle(each_five_samples(with_waits=False)) == TIMED
    assert idle(each_five_samples(with_waits=True)) == []


def test_idle_goroutines_that_run_together_are_idle() -> None:
    program = Program()
    each = program.start(BEAT, ends_ns=program.now_ns + 20 * APART - MS)
    other = program.start(OTHER, signals=True)
    for _ in range(20):
        program.sample(20)
        program.move(each, program.now_ns + 20 * APART - MS)
        program.move(other)
    assert len(idle(program)) == 2


def test_a_wait_that_ends_with_a_loop_by_chance_does_not_matter() -> None:
    program = Program()
    each = program.start(BEAT, ends_ns=program.now_ns + 20 * APART - MS)
    other = program.start(OTHER, others=True)
    for number in range(120):
        program.sample(10)
        if number != 60:
            program.move(other)
        program.sample(10)
        program.move(each, program.now_ns + 20 * APART - MS)
        if number == 60:
            program.move(other)
    program.sample(2)
    assert idle(program) == TIMED


def test_a_short_wait_is_none_for_a_loop_that_is_seldom_at_work() -> None:
    def with_one_wait_of(samples: int) -> Program:
        program = Program()
        each = program.start(BEAT, ends_ns=program.now_ns + 40 * APART)
        other = program.start(AWAY)
        program.sample(40 - samples)
        program.states[other] = OTHER
        program.move(other)
        program.sample(samples)
        program.states[other] = AWAY
        program.move(each, program.now_ns + 40 * APART)
        program.sample(40)
        return program

    assert idle(with_one_wait_of(1)) == TIMED
    assert idle(with_one_wait_of(10)) == []


def test_waits_that_end_at_other_times_do_not_matter() -> None:
    assert idle(rounds_with_another(10)) == TIMED


def test_what_is_new_outweighs_what_was_seen_for_long() -> None:
    program = Program()
    each = program.start(BEAT, ends_ns=program.now_ns + 20 * APART)
    other = program.start(OTHER, others=True)

    def rounds(number: int, *, with_other: bool) -> None:
        for _ in range(number):
            program.sample(20)
            program.move(each, program.now_ns + 20 * APART)
            if with_other:
                program.move(other)

    rounds(2000, with_other=False)
    assert idle(program) == TIMED
    rounds(60, with_other=True)
    assert idle(program) == []
    rounds(4000, with_other=False)
    assert idle(program) == TIMED
