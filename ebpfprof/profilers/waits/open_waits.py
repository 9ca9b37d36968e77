"""Goroutines that still wait when a recording ends, also those that did when it began."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ebpfprof.goruntime.goroutines import ParkedGoroutine, parked_goroutines
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel.losses import Loss
from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.rows import LastWait, StackTotal

BEGAN_BEFORE: Final = Label("began", "before the recording")
_MOVED = "goroutines that perhaps wait not shown: they could not be read while they changed"
_UNLABELLED = "waiting goroutines without their labels: they could not be read"
_CUT = "waiting goroutines with a stack cut short: a part of it could not be read"


@dataclass(frozen=True, slots=True)
class OpenWait:
    """One goroutine that waits. `total` is its stack, with a count of 1 and the time waited so far.

    Of one that waited already when the recording began, that is the length of the recording.
    """

    total: StackTotal
    began_before: bool

    @property
    def labels(self) -> tuple[Label, ...]:
        """What a sample says about when it began to wait."""
        return (BEGAN_BEFORE,) if self.began_before else ()


@dataclass(frozen=True, slots=True)
class ParkedAtEnd:
    """The goroutines parked at the time `read_ns` (CLOCK_MONOTONIC), and what could not be told."""

    goroutines: Sequence[ParkedGoroutine]
    read_ns: int
    losses: tuple[Loss, ...]


def read_parked(go: GoTarget, now_ns: int, *, has_labels: bool) -> ParkedAtEnd:
    """Read which goroutines are parked now. Raises what parked_goroutines raises."""
    found = parked_goroutines(go, has_labels=has_labels)
    counts = (
        ("goroutines_moving", _MOVED, found.unreadable),
        ("stack_cut", _CUT, found.cut_short),
        ("labels_unread", _UNLABELLED, sum(each.labels is None for each in found.goroutines)),
    )
    lost = tuple(Loss(name, text, count) for name, text, count in counts if count)
    return ParkedAtEnd(found.goroutines, now_ns, lost)


def open_waits(
    parked: ParkedAtEnd, last_waits: Mapping[int, LastWait], started_ns: int, *, all_known: bool
) -> list[OpenWait]:
    """The parked goroutines that the target did not wake before the recording ended.

    `last_waits` is what the recording knew of each runtime.g at its end. It began at `started_ns`.
    A goroutine without an entry waited before that, unless not `all_known`: then the kernel's table
    may have been full.
    """
    found = []
    for goroutine in parked.goroutines:
        known = last_waits.get(goroutine.address)
        if known and not _lasted(known, goroutine, parked.read_ns):
            continue  # woken since
        start_ns = known.start_ns if known else started_ns
        total = StackTotal(
            "block",
            goroutine.sema,
            goroutine.return_pcs,
            count=1,
            delay_ns=max(parked.read_ns - start_ns, 1),
            labels=goroutine.labels or (),
        )
        found.append(OpenWait(total, began_before=all_known and known is None))
    return found


def _lasted(known: LastWait, goroutine: ParkedGoroutine, read_ns: int) -> bool:
    """Whether the goroutine, found parked at `read_ns`, was so in the wait that is known of it."""
    if known.waits:
        return known.start_ns <= read_ns
    # Another one was quicker at the semaphore, and it parked once more: the same wait to Go.
    return goroutine.sema != 0 and 0 < known.woken_ns <= read_ns
