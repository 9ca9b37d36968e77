"""What was recorded of a process until a moment: all that its timeline is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.kernel.losses import Loss
    from ebpfprof.process.process import TargetEnd
    from ebpfprof.tracing.slices import Slice


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """A copy: the recording may go on meanwhile.

    Times are CLOCK_MONOTONIC; `stopped_ns` is when the copy was made, `end_ns` until when there are
    events. `rows` are the events by time (tracing.rings.EVENT), `stacks` runtime addresses,
    innermost first, by their keys. `overwritten` counts events that were gone before they were
    read, `is_full` says that there were more than we hold. `missing` are functions of the runtime
    without a place for a probe.
    """

    go: GoTarget
    begin_ns: int
    begin_unix_ns: int
    end_ns: int
    stopped_ns: int
    slices: Sequence[Slice]
    rows: npt.NDArray[Any]
    stacks: Mapping[int, tuple[int, ...]]
    label_sets: Mapping[int, tuple[Any, ...]]
    ending: TargetEnd | None
    overwritten: int
    is_full: bool
    losses: Sequence[Loss]
    missing: Sequence[str]
