"""What the collector of waits takes and gives: what to record, sums, rows of its maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from ebpfprof.profile.model import Label
from ebpfprof.profilers.labels import key_hashes
from ebpfprof.profilers.options import Options

Waiting = Literal["block", "mutex"]


@dataclass(frozen=True, slots=True)
class WaitsConfig:
    """What to record: one of `block` and `mutex` or both.

    `block_rate_ns` is Go's block profile rate: waits that long and longer are all taken, of
    shorter ones as many as their length bears to it; 1 takes every wait. Of releases, one in
    `mutex_fraction` is taken. With `by_lock`, locks are told apart, and who waited for a lock is
    recorded also without `block`. With `runtime_locks`, the mutex profile has those of the Go
    runtime, too. With `labels`, goroutines are told apart by the labels that they have:
    those with the keys whose hashes (labels.key_hashes) are `label_keys`, all for ().
    """

    block: bool
    mutex: bool
    block_rate_ns: int = 1
    mutex_fraction: int = 1
    by_lock: bool = False
    runtime_locks: bool = False
    labels: bool = True
    label_keys: tuple[int, ...] = ()
    windows: bool = False
    """Whether targets may be watched in windows (bpf/waits/window.h)."""

    @classmethod
    def of(cls, options: Options) -> Self:
        """What the collector is to record for these options."""
        return cls(
            block="block" in options.kinds,
            mutex="mutex" in options.kinds,
            block_rate_ns=options["block_rate_ns"],
            mutex_fraction=options["mutex_fraction"],
            by_lock=bool(options["by_lock"] or options["lock_labels"]),
            runtime_locks=bool(options["runtime_locks"]),
            labels=options.labels != (),
            label_keys=key_hashes(options.labels),
            windows=options.is_bounded,
        )


@dataclass(slots=True)  # not frozen: that takes three times as long to make
class StackTotal:
    """What one stack of one target has waited (block) or made others wait (mutex).

    `return_pcs` are return addresses, innermost first: from the park, or from the wake in
    semrelease1. `sema` is the address of the lock's semaphore where locks are told apart, else 0.
    `count` is not whole under sampling: a short wait then stands for several. `labels` are those of
    the goroutine that waited or released.
    """

    kind: Waiting
    sema: int
    return_pcs: tuple[int, ...]
    count: float
    delay_ns: int
    labels: tuple[Label, ...] = ()
    delay_variance: float = 0.0
    """Of delay_ns, in ns², where the target was watched in windows only: Estimate.variances."""


@dataclass(frozen=True, slots=True)
class Hold:
    """How often, and how long in all, a lock was held between two hand-overs that were seen."""

    count: int = 0
    held_ns: int = 0


@dataclass(frozen=True, slots=True)
class LastWait:
    """The last wait of a goroutine: when it began (CLOCK_MONOTONIC), and whether it lasts.

    `woken_ns` is when it was woken from it last, 0 if it was not. One in semacquire1 may park once
    more after that.
    """

    start_ns: int
    waits: bool
    woken_ns: int = 0


@dataclass(frozen=True, slots=True)
class WaitRow:
    """What the kernel knows of the last wait of the goroutine with its runtime.g at `g`.

    Times are of CLOCK_MONOTONIC. `is_again` is one that was woken in semacquire1, and may have
    parked once more. `stack` is None where it was not walked: it waited when the window began.
    """

    g: int
    is_again: bool
    since_ns: int
    stack: KnownStack | None


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A lock at a window's end: what was waited for it since it was released last, in ns.

    `releaser` is the stack that released it last, if that was seen.
    """

    sema: int
    left_ns: int
    releaser: KnownStack | None


class KnownStack(NamedTuple):
    """A stack that is added up: a row of the map `stacks`."""

    target: int
    kind: Waiting
    sema: int
    return_pcs: tuple[int, ...]
    labels: tuple[Label, ...]
