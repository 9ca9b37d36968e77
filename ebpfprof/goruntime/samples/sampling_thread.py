"""One thread that samples the goroutines of all targets of a session, at random times.

A sample must not come when it suits the target. A thread that waits for a processor runs when a
thread of the target stops, and finds more goroutines waiting than there are on average. So this
thread asks the kernel for real-time priority, and while all processors are busy it takes another
one each time. If the kernel refuses that, waits shorter than its delay may seem longer.

To wake a thread costs as much as a sample. So targets that are nearly due are sampled together.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.system.priority import run_promptly

FIRST_SAMPLES: Final = 50
"""Samples at the first rate, so that short recordings have enough of them."""
SETTLED_S: Final = 10.0
LATER_SHARE: Final = 0.5
"""The part of its share that a target gets after SETTLED_S: the more samples there are, the less
another one adds. Then errors are up to 1.4 times as large as with all of the share."""
_SPREAD: Final = (0.5, 1.5)  # times the mean interval
_SMOOTHED: Final = 0.1  # the weight of the last sample in a mean cost
_NEARLY: Final = 0.5  # of the mean interval
_LONG_S: Final = 0.05  # a sleep that must be interruptible
_PROCESSORS: Final = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class SamplingRate:
    """Samples a second: first `hz`, after FIRST_SAMPLES of them `later_hz`."""

    hz: float
    later_hz: float

    def interval_s(self, samples: int, cost_s: float, share: float) -> float:
        """The mean time to the next sample after `samples` of them.

        It is longer if a sample takes more of a processor, `cost_s`, than the `share` allows.
        """
        hz = self.hz if samples < FIRST_SAMPLES else self.later_hz
        return max(1 / hz, cost_s / share)


@dataclass(eq=False, slots=True)
class SampledTarget:
    """A target, its rate and its costs: `sample` takes a sample, `fail` gets its error."""

    rate: SamplingRate
    sample: Callable[[], None]
    fail: Callable[[Exception], None]
    due_s: float = 0.0
    """When the next sample is due, CLOCK_MONOTONIC."""
    mean_s: float = 0.0
    """The mean interval between the last sample and the one that is due."""
    cost_s: float = 0.0
    """What a sample takes, of CPU time, on average."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held during a sample."""
    began_s: float = field(default_factory=time.monotonic)
    """When its samples began."""
    _late_s: float = 0.0
    _samples: int = 0

    @property
    def late_ns(self) -> float:
        """How much later than planned samples came, on average."""
        return 1e9 * self._late_s / max(self._samples, 1)

    def note(self, took_s: float, late_s: float) -> None:
        """Note what a sample took, of CPU time, and how late it came."""
        self._samples += 1
        self._late_s += late_s
        self.cost_s += max(_SMOOTHED, 1 / self._samples) * (took_s - self.cost_s)

    def plan(self, waking_s: float, share: float) -> None:
        """Plan the next sample; to wake for it takes `waking_s`, and all may take this `share`.

        After SETTLED_S, they may take LATER_SHARE of that.
        """
        if time.monotonic() - self.began_s > SETTLED_S:
            share *= LATER_SHARE
        self.mean_s = self.rate.interval_s(self._samples, self.cost_s + waking_s, share)
        due_s = self.due_s + self.mean_s * random.uniform(*_SPREAD)
        self.due_s = max(due_s, time.monotonic())


class SamplingThread:
    """Samples all targets that joined; together that takes a `share` of a processor at most.

    Targets that are sampled for long get half of theirs.

    The thread runs while there are any. Any other thread may use it.
    """

    def __init__(self, share: float = 0.02) -> None:
        self._share = share
        self._turns: list[SampledTarget] = []
        self._lock = threading.Lock()  # of the list
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._waking_s = 0.0  # what it takes to wake, for each of those that are sampled then
        self.used_s = 0.0
        """The CPU time that all samples have taken, with what it takes to wake."""

    @property
    def share(self) -> float:
        """What the samples of one target may take, of a processor's time."""
        return self._share / max(len(self._turns), 1)

    def join(self, turns: SampledTarget) -> None:
        """Sample one more target from now on."""
        with self._lock:
            turns.due_s = time.monotonic()
            self._turns.append(turns)
            turns.plan(self._waking_s, self.share)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ebpfprof-samples", daemon=True
                )
                self._thread.start()
        self._changed.set()

    def leave(self, turns: SampledTarget) -> None:
        """Sample this target no longer; when it returns, no sample is being taken."""
        with self._lock, suppress(ValueError):  # an error may have ended its samples
            self._turns.remove(turns)
        self._changed.set()
        with turns.lock:  # a sample may be in progress
            pass

    def _run(self) -> None:
        be_punctual = _Punctual()
        used_s = time.thread_time()
        while (due_s := self._next_s()) is not None:
            be_punctual.prepare()
            if self._sleep_until(due_s):
                used_s = self._sample_due(due_s, used_s)

    def _next_s(self) -> float | None:
        """When the next sample is due; None, and no thread any more, without targets."""
        self._changed.clear()
        with self._lock:
            if self._turns:
                return min(turn.due_s for turn in self._turns)
            self._thread = None
            return None

    def _sleep_until(self, due_s: float) -> bool:
        """Sleep until then; False if the targets become others before."""
        left_s = due_s - time.monotonic()
        if left_s > _LONG_S and self._changed.wait(left_s - _LONG_S / 2):
            return False
        # The next sample is due at a random time; an Event would take longer to wake.
        time.sleep(max(0.0, due_s - time.monotonic()))
        return True

    def _sample_due(self, due_s: float, used_s: float) -> float:
        """Sample those that are due, or nearly; after the last samples we had used `used_s`.

        Returns what we have used now, of CPU time.
        """
        now_s = time.monotonic()
        with self._lock:
            targets = [turn for turn in self._turns if turn.due_s < now_s + _NEARLY * turn.mean_s]
        costs_s = [self._sample(target, max(0.0, now_s - due_s)) for target in targets]
        now_used_s = time.thread_time()
        self.used_s += now_used_s - used_s
        waking_s = (now_used_s - used_s - sum(costs_s)) / max(len(targets), 1)
        self._waking_s += _SMOOTHED * (waking_s - self._waking_s)
        return now_used_s

    def _sample(self, turns: SampledTarget, late_s: float) -> float:
        """Sample one, and plan its next sample; returns what it took, of CPU time."""
        with turns.lock:
            if turns not in self._turns:
                return 0.0
            began_s = time.thread_time()
            try:
                turns.sample()
            except Exception as error:  # any error: the recording continues without samples
                turns.fail(error)
                with self._lock, suppress(ValueError):  # it may have left meanwhile
                    self._turns.remove(turns)
            took_s = time.thread_time() - began_s
            turns.note(took_s, late_s)
            turns.plan(self._waking_s, self.share)
            return took_s


class _Punctual:
    """Has the kernel run this thread as soon as it is due, if we may ask for that."""

    def __init__(self) -> None:
        self._tid = threading.get_native_id()
        self._allowed = list(os.sched_getaffinity(self._tid))
        self._is_pinned = False
        run_promptly()

    def prepare(self) -> None:
        """Choose a processor for the next sample: any, or while all are busy one at random."""
        is_busy = _runnable_threads() > _PROCESSORS  # this one is among them
        with suppress(OSError):  # where we may not, it runs anywhere
            if is_busy:
                os.sched_setaffinity(self._tid, {random.choice(self._allowed)})
            elif self._is_pinned:
                os.sched_setaffinity(self._tid, self._allowed)
            self._is_pinned = is_busy


def _runnable_threads() -> int:
    """How many threads of the machine run or wait for a processor; 0 if unknown."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].partition(b"/")[0])
    except (OSError, ValueError, IndexError):
        return 0
