"""Reads for --open, at the end of a recording, which goroutines wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.profilers.waits.open_waits import ParkedAtEnd, StandingGoroutines, read_parked

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler


class OpenWaitsRecorder:
    """The waiting goroutines of one process."""

    def __init__(self, go: GoTarget, *, has_labels: bool) -> None:
        """With `has_labels`, read the labels of goroutines, too."""
        self._go, self._has_labels = go, has_labels
        self.parked: ParkedAtEnd | None = None
        """The goroutines that were parked at the end; None if they could not be read."""
        self.standing: StandingGoroutines | None = None
        """For how long goroutine samples found them there, if there are samples."""
        self.unread: Exception | None = None
        """Why they could not be read."""

    def note_end(self, looks: SharedSampler | None) -> None:
        """Read which goroutines wait now."""
        try:
            self.parked = read_parked(self._go, kernel_now_ns(), has_labels=self._has_labels)
            if looks:
                standing = looks.standing(self.parked.goroutines)
                self.standing = StandingGoroutines(standing, looks.totals().mean_ns)
        except TargetGone:
            pass  # it has no goroutines any more
        except Exception as error:  # go on without open waits
            self.unread = for_user(self._go.target, error, self._go.path)
