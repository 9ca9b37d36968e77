"""Reads for --open, at the end of a recording, which goroutines wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.profilers.waits.open_waits import ParkedAtEnd, StandingGoroutines, read_parked

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.samples.shared_sampler import GoroutineLooks


class OpenWaitsRecorder:
    """The waiting goroutines of any number of targets, by their numbers."""

    def __init__(self, *, has_labels: bool) -> None:
        """With `has_labels`, read the labels of goroutines, too."""
        self._has_labels = has_labels
        self.parked: dict[int, ParkedAtEnd] = {}
        """The goroutines that were parked at the end."""
        self.standing: dict[int, StandingGoroutines] = {}
        """What looks say of them, for targets with looks."""
        self.unread: dict[int, Exception] = {}
        """Why we could not read them."""

    def note_end(self, number: int, go: GoTarget, looks: GoroutineLooks | None) -> None:
        """Read which goroutines of a target wait now."""
        try:
            parked = read_parked(go, kernel_now_ns(), has_labels=self._has_labels)
            self.parked[number] = parked
            if looks:
                standing = looks.standing(parked.goroutines)
                self.standing[number] = StandingGoroutines(standing, looks.totals().mean_ns)
        except TargetGone:
            pass  # it has no goroutines any more
        except Exception as error:  # go on without open waits
            self.unread[number] = for_user(go.target, error)

    def forget(self, number: int) -> None:
        """Delete all data of a target."""
        for kept in (self.parked, self.standing, self.unread):
            kept.pop(number, None)
