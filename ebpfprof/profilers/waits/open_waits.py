"""Goroutines that still wait when a recording ends, including those that waited before it began."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ebpfprof.goruntime.goroutines.call_sites import CallSites
from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine, parked_goroutines
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.kinds import OPEN
from ebpfprof.profilers.waits.rows import LastWait, StackTotal

BEGAN_BEFORE: Final = Label("began", "before the recording")
_MOVED = "goroutines that may wait not shown: they changed at each attempt to read them"
_UNLABELLED = "waiting goroutines without their labels: these could not be read"
_CUT = "waiting goroutines with a stack cut short: a part of it could not be read"


@dataclass(frozen=True, slots=True)
class OpenWait:
    """A waiting goroutine. `total` is its stack, with a count of 1 and its waiting time so far.

    With `began_before`, it waited before the recording began: then the time is the length of the
    recording.
    """

    total: StackTotal
    began_before: bool

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of its sample about the begin of the wait."""
        return (BEGAN_BEFORE,) if self.began_before else ()


@dataclass(frozen=True, slots=True)
class ParkedAtEnd:
    """The goroutines parked at the time `read_ns` (CLOCK_MONOTONIC), and what we could not read."""

    goroutines: Sequence[ParkedGoroutine]
    read_ns: int
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class StandingGoroutines:
    """What looks say of the goroutines parked at the end: see SharedSampler.

    `since_ns` has by runtime.g when a look found it in its wait first (CLOCK_MONOTONIC).
    """

    since_ns: Mapping[int, int]
    interval_ns: float

    def __str__(self) -> str:
        return (
            "waiting times are lower bounds: for goroutines that did not move between samples, "
            f"{self.interval_ns / 1e6:.0f} ms apart on average. Other waiting goroutines "
            "are not shown"
        )


def read_parked(go: GoTarget, now_ns: int, *, has_labels: bool) -> ParkedAtEnd:
    """Read which goroutines are parked now, without those that Go hides, the runtime's own.

    Raises what parked_goroutines raises.
    """
    parked = parked_goroutines(go, has_labels=has_labels)
    counts = (
        ("goroutines_moving", _MOVED, parked.unreadable),
        ("stack_cut", _CUT, parked.cut_short),
        (
            "labels_unread",
            _UNLABELLED,
            sum(goroutine.labels is None for goroutine in parked.goroutines),
        ),
    )
    lost = tuple(Loss(name, text, count, (OPEN.name,)) for name, text, count in counts if count)
    sites = CallSites(go.binary, go.load_bias, has_arguments=False)
    shown = [
        goroutine
        for goroutine in parked.goroutines
        # One that runs finalizers and waits here waits in a finalizer of the program.
        if not sites.is_system(goroutine.start_pc) or sites.runs_finalizers(goroutine.start_pc)
    ]
    return ParkedAtEnd(shown, now_ns, lost)


def open_waits(
    parked: ParkedAtEnd, last_waits: Mapping[int, LastWait], started_ns: int, *, all_known: bool
) -> list[OpenWait]:
    """The parked goroutines that the target did not wake before the recording ended.

    `last_waits` is what the recording knew of each runtime.g at its end. It began at `started_ns`.
    A goroutine without an entry waited before that, unless not `all_known`: then the kernel's table
    may have been full.
    """
    waits = []
    for goroutine in parked.goroutines:
        known = last_waits.get(goroutine.address)
        if known and not _lasted(known, goroutine, parked.read_ns):
            continue  # the target has woken it since
        start_ns = known.start_ns if known else started_ns
        total = _total(goroutine, parked.read_ns - start_ns)
        began_before = known.is_seeded if known else all_known
        waits.append(OpenWait(total, began_before))
    return waits


def standing_waits(
    parked: ParkedAtEnd, standing: StandingGoroutines, started_ns: int
) -> list[OpenWait]:
    """The parked goroutines that have not moved between looks; others may run at any moment.

    A goroutine that a look found in its wait before `started_ns` waits for the whole recording.
    """
    waits = []
    for goroutine in parked.goroutines:
        since_ns = standing.since_ns.get(goroutine.address)
        if since_ns is not None:
            began_before = since_ns < started_ns
            waited_ns = parked.read_ns - (started_ns if began_before else since_ns)
            waits.append(OpenWait(_total(goroutine, waited_ns), began_before))
    return waits


def _total(goroutine: ParkedGoroutine, waited_ns: int) -> StackTotal:
    return StackTotal(
        "block",
        goroutine.sema,
        goroutine.return_pcs,
        count=1,
        delay_ns=max(waited_ns, 1),
        labels=goroutine.labels or (),
    )


def _lasted(known: LastWait, goroutine: ParkedGoroutine, read_ns: int) -> bool:
    """Whether a goroutine that was parked at `read_ns` was in the wait that the kernel knows."""
    if known.waits:
        return known.start_ns <= read_ns
    # Another goroutine took the semaphore first, so it parked again: to Go, the same wait.
    return goroutine.sema != 0 and 0 < known.woken_ns <= read_ns
