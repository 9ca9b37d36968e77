"""Conditions on what goroutines wait for, and how long: what --until-wait names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.goroutines.fields import GOID_SHIFT, REASON_SHIFT
from ebpfprof.goruntime.goroutines.states import PARKED, RUNNABLE, SYSCALL
from ebpfprof.goruntime.waits.standing import TRIGGERING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from symbolizer.go.runtime_layout import RuntimeLayout

LOCKS: Final = "locks"
RUNNABLE_WORD: Final = "runnable"
SYSCALL_WORD: Final = "syscall"
_LOCK_REASONS: Final = (
    "sync.Mutex.Lock",
    "sync.RWMutex.RLock",
    "sync.RWMutex.Lock",
    "semacquire",
)
SHORTEST_PAUSE_S: Final = 0.01
LEAST_S: Final = TRIGGERING.samples * SHORTEST_PAUSE_S
"""A condition on shorter waits can't be noticed."""
_STATUS_BITS: Final = 0xFF


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """That a goroutine stays so long in one state.

    `what` is "locks", "runnable", "syscall", a wait reason as Go's tracebacks have it, or else a
    function: then the goroutine waits for whatever it is, with that function on its stack.
    """

    what: str
    least_ns: int
    statuses: frozenset[int]
    reasons: frozenset[int] | None
    """Numbers of wait reasons; None for any."""

    @property
    def function(self) -> str:
        """The function that must be on the stack; "" for none."""
        is_state = self.reasons is not None or self.what in (RUNNABLE_WORD, SYSCALL_WORD)
        return "" if is_state else self.what

    @property
    def needs_stack(self) -> bool:
        """Whether only its stack shows that a goroutine is meant."""
        return bool(self.function) or self.leaves_out_idle

    @property
    def leaves_out_idle(self) -> bool:
        """Whether waits for work don't count. Locks are never idle, nor is one that could run."""
        return self.what not in (LOCKS, RUNNABLE_WORD)

    def may_be(self, state: int) -> bool:
        """Whether a state (tracing.state_numbers) is one of those, but for the stack."""
        reason = state >> REASON_SHIFT & 0xFF
        is_status = status_of(state) in self.statuses
        return is_status and (self.reasons is None or reason in self.reasons)


def goid_of(state: int) -> int:
    """The goroutine of a state."""
    return state >> GOID_SHIFT


def status_of(state: int) -> int:
    """The g.atomicstatus of a state."""
    return state & _STATUS_BITS


def reasons_of(layout: RuntimeLayout) -> dict[str, int]:
    """The wait reasons of a program by their words."""
    texts = layout.wait_reason_texts
    return {texts[name]: number for name, number in layout.wait_reasons.items() if texts[name]}


def wait_condition(what: str, least_s: float, layout: RuntimeLayout) -> WaitCondition:
    """The condition of these words: `what` is as WaitCondition has it."""
    reasons = reasons_of(layout)
    least_ns = round(least_s * 1e9)
    if what == RUNNABLE_WORD:
        return WaitCondition(what, least_ns, frozenset({RUNNABLE}), None)
    if what == SYSCALL_WORD:
        return WaitCondition(what, least_ns, frozenset({SYSCALL}), None)
    words: Iterable[str] = _LOCK_REASONS if what == LOCKS else (what,)
    numbers = frozenset(reasons[word] for word in words if word in reasons)
    if not numbers:  # a function
        return WaitCondition(what, least_ns, frozenset({*PARKED, SYSCALL}), None)
    return WaitCondition(what, least_ns, frozenset(PARKED), numbers)
