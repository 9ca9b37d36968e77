"""Programs of which every goroutine is asleep, where Go's own detector does not see that.

Go ends a program whose goroutines all wait for each other (runtime/proc.go, checkdead, Go 1.19 to
1.27), but not one that uses cgo, receives signals, or waits for the network or a timer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
from ebpfprof.profile.waiting_for import Sureness

WAITS: Final = frozenset(
    {
        *("chan receive", "chan send", "select", "semacquire"),
        *("chan receive (nil chan)", "chan send (nil chan)", "select (no cases)"),
        *("sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock"),
        *("sync.Cond.Wait", "sync.WaitGroup.Wait", "coroutine"),
    }
)
"""States in which only another goroutine can wake one, or a timer (runtime2.go, waitReason)."""
IO_WAIT: Final = "IO wait"
_SYSCALL: Final = "syscall"
_RECEIVES_SIGNALS: Final = "os/signal.signal_recv"
_LOCKS: Final = ("sync.Mutex", "sync.RWMutex")


@dataclass(frozen=True, slots=True)
class Asleep:
    """Every goroutine of a program is asleep.

    `goroutines` can only be woken by each other. It is certain if there is nothing else. Else
    `accepting` wait for connections, `for_signals` for signals, and something waits for a lock.
    `foreign_threads` are those that are not Go's: C may call Go. None if that is not known.
    """

    goroutines: tuple[DumpedGoroutine, ...]
    accepting: tuple[DumpedGoroutine, ...]
    for_signals: tuple[DumpedGoroutine, ...]
    foreign_threads: int | None

    @property
    def sureness(self) -> Sureness:
        """Whether anything from outside can wake a goroutine."""
        is_closed = not self.accepting and not self.for_signals and self.foreign_threads == 0
        return Sureness.CERTAIN if is_closed else Sureness.LIKELY


def is_signal_receiver(state: str, functions: Sequence[str]) -> bool:
    """Whether a goroutine is the one of os/signal that takes signals from the runtime."""
    return state == _SYSCALL and _RECEIVES_SIGNALS in functions


def may_be_asleep(dump: GoroutineDump) -> bool:
    """Whether all goroutines stand still, and only connections and signals could wake them."""
    if dump.moved or dump.beyond or not dump.goroutines:
        return False
    return all(
        (goroutine.stood_ns and (goroutine.state in WAITS or _accepts(goroutine)))
        or takes_signals(goroutine)
        for goroutine in dump.goroutines
    )


def asleep(dump: GoroutineDump) -> Asleep | None:
    """What further samples confirmed to be asleep; None if anything moves, or may be idle.

    A program that waits for connections or signals is idle, unless a goroutine waits for a lock.
    """
    if dump.outside is None or not may_be_asleep(dump):
        return None
    sleeping, accepting, for_signals = [], [], []
    for goroutine in dump.goroutines:
        if _accepts(goroutine):
            accepting.append(goroutine)
        elif goroutine.waits_for.for_signal:
            for_signals.append(goroutine)
        elif not takes_signals(goroutine):
            sleeping.append(goroutine)
    finding = Asleep(
        tuple(sleeping), tuple(accepting), tuple(for_signals), dump.outside.foreign_threads
    )
    is_idle = finding.sureness is Sureness.LIKELY and not any(map(_waits_for_lock, sleeping))
    return None if is_idle or not sleeping else finding


def _accepts(goroutine: DumpedGoroutine) -> bool:
    wait = goroutine.waits_for.file_wait
    return goroutine.state == IO_WAIT and wait is not None and wait.file.is_listener


def takes_signals(goroutine: DumpedGoroutine) -> bool:
    """Whether it is the goroutine of os/signal that takes signals from the runtime."""
    return is_signal_receiver(goroutine.state, [frame.function for frame in goroutine.frames])


def _waits_for_lock(goroutine: DumpedGoroutine) -> bool:
    return goroutine.waits_for.lock is not None and goroutine.waits_for.lock.type in _LOCKS
