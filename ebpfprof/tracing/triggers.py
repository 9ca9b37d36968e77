"""Conditions that end a recording: so that its last seconds show the cause."""

from __future__ import annotations

from random import uniform
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.console.text import counted, duration
from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.table import GoroutineTable
from ebpfprof.goruntime.waits.standing import TRIGGERING, StandingJudge
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.tracing.state_numbers import StateNumbers
from ebpfprof.tracing.wait_conditions import SHORTEST_PAUSE_S
from ebpfprof.tracing.wait_stacks import WaitStacks
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.goruntime.goroutines.table import Heads
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.tracing.wait_conditions import WaitCondition

_MOST_SHARE: Final = 0.02  # of a processor, for samples
_CREDIT_S: Final = 0.3  # the first stack that is read takes long
MANY: Final = 3
"""After this number of samples that are slow, or that fail, there is a warning."""
_USUAL_PAUSE_S: Final = 0.1
_UNEVEN: Final = 0.3  # so that what moves in a rhythm is not seen in the same state each time


class Trigger:
    """Samples the goroutines of a process until one of the conditions holds."""

    def __init__(
        self,
        go: GoTarget,
        *,
        waits: Sequence[WaitCondition] = (),
        goroutines: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`waits`: one waits so long. `goroutines`: there are more than that. `clock`: in seconds.

        Raises TargetGone, PermissionDenied or GoTableError.
        """
        self.why = ""
        """Which condition holds, in a sentence; "" if none does."""
        self._waits, self._most = waits, goroutines
        self._scanner = GoroutineScanner(go, has_labels=False)
        self._table = GoroutineTable(self._scanner.memory, go.binary, go.load_bias, "thread")
        self._states = StateNumbers(self._scanner.memory, go.binary.layout)
        self._judge = StandingJudge()
        self._stacks = WaitStacks(go, self._scanner, self._table, self._states)
        self._rejected: list[set[int]] = [set() for _ in waits]
        shortest_s = min((wait.least_ns / 1e9 for wait in waits), default=_USUAL_PAUSE_S)
        # Twice as often as must be: so that it is noticed while it lasts.
        self._every_s = max(
            SHORTEST_PAUSE_S, min(_USUAL_PAUSE_S, shortest_s / (2 * TRIGGERING.samples))
        )
        self.samples = 0
        """The number of samples so far."""
        self._due_s = 0.0
        self._shortest_s = shortest_s
        self.warning = ""
        """That samples fail, or take too long, once each, until the caller empties it."""
        self._slow_samples = self._failed_samples = 0
        self._clock = clock
        self._debt_s, self._paid_s = 0.0, clock()

    def is_met(self) -> bool:
        """Take a sample, unless that was done just now; True once a condition holds."""
        now_s = self._clock()
        if now_s < self._due_s or self.why or not (self._waits or self._most is not None):
            return bool(self.why)
        try:
            began_ns = monotonic_ns()
            heads = self._table.read()
            self._check_number(heads)
            self._check_waits(heads, began_ns)
            self._failed_samples = 0
        except TargetGone:
            pass  # the recording ends
        except (UnreadableMemory, SymbolizerError) as error:
            self._failed_samples += 1
            if self._failed_samples == MANY:
                self.warning = f"samples fail, so a condition may be met unnoticed: {error}"
        self.samples += 1
        every_s = max(self._every_s, self._pause_s(now_s, self._clock() - now_s))
        self._due_s = now_s + every_s * uniform(1 - _UNEVEN, 1 + _UNEVEN)
        self._warn(every_s)
        return bool(self.why)

    def _pause_s(self, now_s: float, took_s: float) -> float:
        """How long to pause so that samples take no more than their share; some may take longer."""
        paid_s = _MOST_SHARE * (now_s - self._paid_s)
        self._debt_s = max(0.0, self._debt_s - paid_s) + took_s
        self._paid_s = now_s
        return max(0.0, self._debt_s - _CREDIT_S) / _MOST_SHARE

    def _check_number(self, heads: Heads) -> None:
        if self._most is None:
            return
        number = int(np.count_nonzero(heads.is_there))
        if number > self._most:
            self.why = f"there are {counted(number, 'goroutine')}"

    def _check_waits(self, heads: Heads, began_ns: int) -> None:
        if not self._waits or self.why:
            return
        self._judge.add(self._states.of(heads), began_ns, monotonic_ns())
        for condition, rejected in zip(self._waits, self._rejected, strict=True):
            threshold = TRIGGERING._replace(ns=condition.least_ns)
            since_ns = self._judge.standing(threshold).by_wait()
            lasting = sorted(since_ns)
            rejected &= set(lasting)
            possible = [goid for goid in lasting if goid not in rejected and condition.may_be(goid)]
            wait = self._stacks.first(condition, possible, rejected)
            if wait:
                self.why = wait.sentence(began_ns - since_ns[wait.state])
                return

    def _warn(self, every_s: float) -> None:
        noticed_s = every_s * (TRIGGERING.samples + 1)
        if not self._waits or noticed_s < 2 * self._shortest_s:
            return
        self._slow_samples += 1
        if self._slow_samples == MANY:
            self.warning = (
                f"there are so many goroutines that samples of them are {duration(every_s * 1e9)} "
                f"apart: waits shorter than {duration(noticed_s * 1e9)} may end unnoticed"
            )
