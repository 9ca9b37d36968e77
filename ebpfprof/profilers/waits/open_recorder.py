"""Reads for --open, while a recording goes on and at its end, which goroutines wait."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.looks import GoroutineLooks
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profilers.waits.open_waits import ParkedAtEnd, StandingGoroutines, read_parked
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget


class OpenWaitsRecorder:
    """The waiting goroutines of any number of targets, by their numbers."""

    def __init__(self, *, has_labels: bool) -> None:
        """With `has_labels`, read the labels of goroutines, too."""
        self._has_labels = has_labels
        self._looks: dict[int, GoroutineLooks] = {}
        self.parked: dict[int, ParkedAtEnd] = {}
        """The goroutines that were parked at the end."""
        self.unread: dict[int, Exception] = {}
        """Why we could not read them."""

    def begin_looks(self, number: int, go: GoTarget) -> None:
        """Look at a target's goroutines, and again with each poll().

        Raises TargetGone or PermissionDenied.
        """
        self.forget(number)
        with suppress(GoTableError):  # without a list of goroutines, a recording has no windows
            self._looks[number] = GoroutineLooks(go)
            self.poll()

    def poll(self) -> None:
        """Look at the goroutines whose last look was long enough ago."""
        for looks in self._looks.values():
            with suppress(TargetGone, UnreadableMemory):  # the next look may have an answer
                looks.look_if_due()

    def note_end(self, number: int, go: GoTarget) -> None:
        """Read which goroutines of a target wait now."""
        try:
            if number in self._looks:
                self._looks[number].look()
            self.parked[number] = read_parked(go, kernel_now_ns(), has_labels=self._has_labels)
        except TargetGone:
            pass  # it has no goroutines any more
        except Exception as error:  # go on without open waits
            self.unread[number] = for_user(go.target, error)

    def standing(self, number: int) -> StandingGoroutines | None:
        """What looks say of the goroutines that were parked at the end; None without looks."""
        looks, parked = self._looks.get(number), self.parked.get(number)
        if looks is None or parked is None:
            return None
        return StandingGoroutines(looks.standing(parked.goroutines), looks.interval_ns)

    def forget(self, number: int) -> None:
        """Delete all data of a target."""
        if looks := self._looks.pop(number, None):
            looks.close()
        self.parked.pop(number, None)
        self.unread.pop(number, None)

    def close(self) -> None:
        """Close the memory of all targets; what was read stays."""
        for looks in self._looks.values():
            looks.close()
        self._looks.clear()
