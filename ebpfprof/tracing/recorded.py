"""What was recorded of a process until a moment: all that its timeline is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.mappings import MappedObjects
    from ebpfprof.process.process import TargetEnd
    from ebpfprof.profile.losses import Loss
    from ebpfprof.profile.waiting_for import FileWait
    from ebpfprof.timeline.model import HeapSize
    from ebpfprof.tracing.slices import Slice

_WHOLE: Final = 0.9  # of the time: what is missing is the time to detach probes


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """A copy: the recording may continue meanwhile.

    Times are CLOCK_MONOTONIC; `stopped_ns` is when the copy was made, `end_ns` until when there are
    events. `rows` are the events by time (tracing.rings.EVENT), `stacks` runtime addresses,
    innermost first, by their keys. The files that goroutines waited for are in `polled`, as
    TraceProgram.files() returns them, and in `looked_at`, by Known.on. `mapped` is the code of a
    program that can call C, `c_failure` why its stacks are incomplete. `overwritten` counts events
    that were gone before they were read, `is_full` says that there were more than we hold.
    `missing` are functions of the runtime without a place for a probe, `unseen` those of
    runtime/trace in the program that report nothing while Go's tracer is off. `share_of_slices` is
    SliceBudget.share_of_slices.
    """

    go: GoTarget
    exact_starts: bool
    begin_ns: int
    begin_unix_ns: int
    end_ns: int
    stopped_ns: int
    slices: Sequence[Slice]
    rows: npt.NDArray[Any]
    stacks: Mapping[int, tuple[int, ...]]
    label_sets: Mapping[int, tuple[Any, ...]]
    polled: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    looked_at: Mapping[int, FileWait]
    heap: Sequence[HeapSize]
    mapped: MappedObjects | None
    ending: TargetEnd | None
    overwritten: int
    is_full: bool
    losses: Sequence[Loss]
    c_failure: Exception | None
    missing: Sequence[str]
    unseen: Sequence[str]
    share_of_slices: float | None

    @property
    def traced_ns(self) -> int:
        """How long all was recorded, without pauses."""
        return sum(part.end_ns - max(part.begin_ns, self.begin_ns) for part in self.slices)

    @property
    def has_pauses(self) -> bool:
        """Whether a bound of overhead left out more than the time to detach the probes."""
        length_ns = self.stopped_ns - self.begin_ns
        return not self.ending and self.traced_ns < _WHOLE * length_ns
