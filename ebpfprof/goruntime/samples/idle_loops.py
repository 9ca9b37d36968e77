"""Which goroutines are idle by what they do: a fixed set of them waits in a loop for a timer.

It uses the samples of a GoroutineSampler. Now and then it also reads what can wake the goroutines
that wait for channels or sleep. In doubt a wait is not idle:

- The goroutines of its stack are few, all of them live for nine tenths of the time or for a minute,
  none has ended, and they wait there for 95 % of their time or more.
- Nothing but timers can wake them, and they have moved. Or other goroutines can, too (a channel
  that ends the loop), but timers did: of the waits whose ends were seen, hardly one ended before
  its timer, and the goroutines moved hardly more often than a periodic timer ticks. Or nothing but
  os/signal can wake them. Never idle: a channel that the goroutine sends to, locks, WaitGroups.
- No other waits end when theirs do: then those goroutines may wait for what the loop does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.fields import GOID_SHIFT
from ebpfprof.goruntime.goroutines.states import PARKED
from ebpfprof.goruntime.waits.standing import LONG_FOR_A_LOOP, StandingJudge
from ebpfprof.profile.behaviour import IdleBehaviour

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.samples.state_sums import GoroutineState
    from ebpfprof.goruntime.waits.wait_causes import CauseReader, WaitCause

_MAX_STATES: Final = 4096
_MAX_MEMBERS: Final = 64  # of a set of goroutines
_MAX_INSPECTED: Final = 512  # goroutines at once
_LEAST_SAMPLES: Final = 10
_LEAST_NS: Final = 500_000_000
_LEAST_SHARE: Final = 0.95
_AGES_NS: Final = 60_000_000_000  # then what was seen counts half
_LONG_LIVED_NS: Final = 60_000_000_000
_MOST_OF: Final = 0.9  # of the time of the samples is a long life, too
_SOON_NS: Final = 100_000_000  # between the first inspections
_LATER_NS: Final = 500_000_000
_FIRST: Final = 10
_LATE_NS: Final = 20_000_000  # a goroutine may run that much later than its timer fires
_MAX_EARLY: Final = 0.1  # of the waits that ended
_MAX_MOVES: Final = 2.0  # times the ticks of a periodic timer
_RARE: Final = 12  # samples from one round to the next
_RARELY: Final = 50  # a wait that ends with one in that many rounds of a loop ends by chance
_WATCHED: Final = frozenset({"chan receive", "select", "sleep"})
# The end of these says nothing of other goroutines.
_ENDS_ALONE: Final = frozenset({"sleep", "IO wait", "running", "runnable", "syscall", "preempted"})
_GOID_SHIFT: Final = np.uint64(GOID_SHIFT)

_COUNTS: Final = (
    *("moves", "inspected", "timers", "signals", "others", "sends", "one_shots"),
    *("by_timer", "early", "trips"),
)


@dataclass(slots=True)
class _Set:
    """The goroutines that waited with one stack, and how."""

    goids: dict[int, int] = field(default_factory=dict)  # with the place in runtime.allgs
    is_crowd: bool = False
    ns: float = 0.0
    moves: int = 0
    period_ns: int = 0  # the shortest one of its timers
    inspected: int = 0
    timers: int = 0
    signals: int = 0
    others: int = 0
    sends: int = 0
    one_shots: int = 0
    by_timer: int = 0
    early: int = 0
    trips: int = 0
    last_trip: int = 0
    followers: Counter[GoroutineState] = field(default_factory=Counter)
    long_followers: Counter[GoroutineState] = field(default_factory=Counter)

    def age(self) -> None:
        """Let what was seen count half, so that new things outweigh it soon."""
        self.ns /= 2
        for name in _COUNTS:
            setattr(self, name, (getattr(self, name) + 1) // 2)
        self.followers = _halved(self.followers)
        self.long_followers = _halved(self.long_followers)


class IdleLoops:
    """Watches the goroutines of one target from sample to sample; the sampler calls it."""

    def __init__(self, causes: CauseReader) -> None:
        self._causes = causes
        self._judge = StandingJudge()
        self._sets: dict[GoroutineState, _Set] = {}
        # Since when goroutines of sets wait, by their number.
        self._at: dict[int, tuple[GoroutineState, float]] = {}
        # By number of the goroutine, and how many samples there had been when it was read.
        self._pending: dict[int, tuple[WaitCause, int]] = {}
        self._goids = np.zeros(0, np.uint64)
        self._born_ns = np.zeros(0, np.int64)
        self._samples = 0
        self._begin_ns = self._last_ns = self._inspected_ns = self._aged_ns = 0
        self._inspections = 0
        # The last sample by which some wait had ended, and its goroutine; how many such there are.
        self._left: dict[GoroutineState, tuple[int, int]] = {}
        self._lefts: Counter[GoroutineState] = Counter()
        # The same of long waits.
        self._long_left: dict[GoroutineState, tuple[int, int]] = {}
        self._long_lefts: Counter[GoroutineState] = Counter()
        self._trips: dict[int, tuple[GoroutineState, int]] = {}  # that continue, with their begin
        self._over: list[tuple[int, GoroutineState, int]] = []  # that ended at the last sample

    def note(
        self,
        now_ns: int,
        addresses: npt.NDArray[np.uint64],
        waits: npt.NDArray[np.uint64],
        slots: Sequence[int],
        before: Sequence[GoroutineState | None],
        states: Sequence[GoroutineState | None],
    ) -> None:
        """Note a sample (CLOCK_MONOTONIC): see Heads for `addresses` and `waits`.

        `states` are those of the goroutines with the numbers `slots`, which may have moved, and
        `before` those at the sample before; all others are as they were. Raises TargetGone.
        """
        self._note_lives(now_ns, waits)
        middle_ns = (self._last_ns + now_ns) / 2 if self._samples else now_ns
        over, self._over = self._over, []
        has_moved = self._judge.moved(waits)
        for slot, known, state in zip(slots, before, states, strict=True):
            if known is not None and (has_moved[slot] or known != state):
                self._leave(slot, known, state, int(waits[slot]), middle_ns, now_ns)
                known = None
            if known is None and state is not None:
                self._enter(slot, state, int(waits[slot]) >> GOID_SHIFT, middle_ns)
        for trip in over:
            self._judge_trip(*trip)
        self._judge.add(waits, now_ns, now_ns)
        self._samples += 1
        self._last_ns = now_ns
        self._begin_ns = self._begin_ns or now_ns
        self._aged_ns = self._aged_ns or now_ns
        if now_ns - self._aged_ns >= _AGES_NS:
            self._age(now_ns)
        apart_ns = _SOON_NS if self._inspections < _FIRST else _LATER_NS
        if now_ns - self._inspected_ns >= apart_ns:
            self._inspect(now_ns, addresses)

    def goids(self, state: GoroutineState) -> frozenset[int]:
        """The ids of the goroutines that ever waited so, or of too many of them."""
        return frozenset(self._sets[state].goids)

    def behaviours(self) -> dict[GoroutineState, IdleBehaviour]:
        """The waits that are idle by all samples so far."""
        if self._samples < _LEAST_SAMPLES or self._last_ns - self._begin_ns < _LEAST_NS:
            return {}
        open_ns: Counter[GoroutineState] = Counter()
        for state, since_ns in self._at.values():
            open_ns[state] += round(self._last_ns - max(since_ns, self._begin_ns))
        behaviours = {}
        for state, group in self._sets.items():
            if behaviour := self._behaviour(group, open_ns[state]):
                behaviours[state] = behaviour
        # Two timers that fire at the same time don't make one goroutine wait for the other.
        return {
            state: behaviour
            for state, behaviour in behaviours.items()
            if not self._has_followers(state, behaviours)
        }

    def _behaviour(self, group: _Set, open_ns: int) -> IdleBehaviour | None:
        if group.is_crowd or not group.inspected or group.sends:
            return None
        lived_ns = 0
        long_ns = min(_LONG_LIVED_NS, _MOST_OF * (self._last_ns - self._begin_ns))
        for goid, slot in group.goids.items():
            if int(self._goids[slot]) != goid:
                return None  # it has ended
            born_ns = int(self._born_ns[slot])
            if self._last_ns - born_ns < long_ns:
                return None
            lived_ns += self._last_ns - max(born_ns, self._begin_ns)
        share = min(1.0, (group.ns + open_ns) / max(lived_ns, 1))
        if share < _LEAST_SHARE:
            return None
        only_signals = group.signals == group.inspected and not group.timers and not group.others
        if only_signals:
            return IdleBehaviour(len(group.goids), share, "signal")
        if group.timers == group.inspected and group.moves and _is_timed(group, open_ns):
            return IdleBehaviour(len(group.goids), share, "timer")
        return None

    def _has_followers(
        self, state: GoroutineState, idle: dict[GoroutineState, IdleBehaviour]
    ) -> bool:
        """Whether waits of others end mostly when its goroutines run.

        Where these run in nearly each sample, that holds for all waits: then samples show nothing.
        If they run rarely, only long waits count.
        """
        group = self._sets[state]
        return any(
            other not in idle and hits >= max(group.trips / _RARELY, ends[other] / 2)
            for followers, ends in (
                (group.followers, self._lefts),
                (group.long_followers, self._long_lefts),
            )
            for other, hits in followers.items()
        )

    def _note_lives(self, now_ns: int, waits: npt.NDArray[np.uint64]) -> None:
        more = len(waits) - len(self._goids)
        if more > 0:
            self._goids = np.concatenate((self._goids, np.zeros(more, np.uint64)))
            self._born_ns = np.concatenate((self._born_ns, np.zeros(more, np.int64)))
        goids = waits >> _GOID_SHIFT
        self._born_ns[goids != self._goids] = now_ns if self._samples else 0
        self._goids = goids

    def _enter(self, slot: int, state: GoroutineState, goid: int, since_ns: float) -> None:
        if (trip := self._trips.get(slot)) and trip[0] == state:
            del self._trips[slot]
            self._over.append((slot, *trip))
        if state.word not in _WATCHED or not state.pcs:
            return
        group = self._sets.get(state)
        if group is None:
            if len(self._sets) >= _MAX_STATES:
                return
            group = self._sets[state] = _Set()
        if not group.is_crowd:
            group.goids[goid] = slot
            group.is_crowd = len(group.goids) > _MAX_MEMBERS
            self._at[slot] = state, since_ns

    def _leave(
        self,
        slot: int,
        before: GoroutineState,
        state: GoroutineState | None,
        wait: int,
        middle_ns: float,
        now_ns: int,
    ) -> None:
        since_ns = self._at.pop(slot, (before, middle_ns))[1]
        ended_by_timer = self._judge_end(slot, before, now_ns)
        group = self._sets.get(before)
        if group:
            group.ns += middle_ns - since_ns
            group.moves += (wait >> 16) - (int(self._judge.waits[slot]) >> 16) & 0xFF
            if not group.is_crowd:
                self._trips.setdefault(slot, (before, self._samples))
        if state is None:
            self._trips.pop(slot, None)
        if before.word in _ENDS_ALONE or ended_by_timer:
            return
        if before not in self._left and len(self._left) >= _MAX_STATES:
            return
        self._lefts[before] += self._left.get(before, (-1, 0))[0] != self._samples
        self._left[before] = self._samples, slot
        if self._judge.stands(slot, LONG_FOR_A_LOOP):
            self._long_lefts[before] += self._long_left.get(before, (-1, 0))[0] != self._samples
            self._long_left[before] = self._samples, slot

    def _judge_end(self, slot: int, state: GoroutineState, now_ns: int) -> bool:
        """Note whether a wait ended with its timer, if that is known; return whether it did."""
        cause, samples = self._pending.pop(slot, (None, 0))
        group = self._sets.get(state)
        if cause is None or group is None or not cause.ends_ns:
            return False
        if int(self._judge.waits[slot]) != cause.wait:
            return False
        if now_ns < cause.ends_ns:
            group.early += 1
            return False
        if cause.ends_ns < self._last_ns - _LATE_NS:
            return False  # the timer was stopped
        # At the first sample after the inspection it may have ended early, unseen.
        group.by_timer += self._samples > samples
        return True

    def _age(self, now_ns: int) -> None:
        self._aged_ns = now_ns
        self._begin_ns += (now_ns - self._begin_ns) // 2
        present = {state for state, _ in self._at.values()}
        present.update(state for state, _ in self._trips.values())
        self._sets = {state: group for state, group in self._sets.items() if state in present}
        for group in self._sets.values():
            group.age()
        self._lefts, self._long_lefts = _halved(self._lefts), _halved(self._long_lefts)
        for left, counts in ((self._left, self._lefts), (self._long_left, self._long_lefts)):
            for state in left.keys() - counts.keys():
                del left[state]

    def _judge_trip(self, slot: int, state: GoroutineState, begin: int) -> None:
        """Note which waits of others ended while a goroutine was away from its wait."""
        group = self._sets.get(state)
        if group is None:
            return
        group.trips += 1
        is_rare = begin - group.last_trip >= _RARE
        group.last_trip = begin
        followers = group.long_followers if is_rare else group.followers
        ended = self._long_left if is_rare else self._left
        followers.update(
            other
            for other, (sample, of) in ended.items()
            if sample >= begin and of != slot and other != state
        )
        if len(followers) > _MAX_STATES:
            group.is_crowd = True

    def _inspect(self, now_ns: int, addresses: npt.NDArray[np.uint64]) -> None:
        self._inspected_ns = now_ns
        self._inspections += 1
        slots = [
            slot
            for slot, (state, _) in self._at.items()
            if (group := self._sets.get(state)) and not group.is_crowd
            if int(self._judge.waits[slot]) & 0xFF in PARKED
        ]
        slots = slots[:_MAX_INSPECTED]
        places = addresses[np.array(slots, np.int64)].tolist()
        causes = self._causes.read(places)
        pending, self._pending = self._pending, {}
        for slot, place in zip(slots, places, strict=True):
            cause = causes.get(place)
            if cause is None or cause.wait != int(self._judge.waits[slot]):
                continue
            group = self._sets[self._at[slot][0]]
            group.inspected += 1
            group.timers += cause.ends_ns > 0
            group.signals += cause.signals
            group.others += cause.others
            group.sends += cause.sends
            group.one_shots += cause.ends_ns > 0 and not cause.period_ns
            group.period_ns = min(filter(None, (group.period_ns, cause.period_ns)), default=0)
            known = pending.get(slot)
            is_same = known is not None and known[0] == cause
            self._pending[slot] = known if known and is_same else (cause, self._samples)


def _halved(counts: Counter[GoroutineState]) -> Counter[GoroutineState]:
    return Counter({state: count // 2 for state, count in counts.items() if count > 1})


def _is_timed(group: _Set, open_ns: int) -> bool:
    """Whether timers wake its goroutines, and hardly anything else."""
    if not group.others:
        return True
    if group.early > _MAX_EARLY * group.by_timer:
        return False
    if group.one_shots:
        return group.by_timer > 0
    ticks = (group.ns + open_ns) / max(group.period_ns, 1)
    return group.moves <= _MAX_MOVES * ticks + len(group.goids)
