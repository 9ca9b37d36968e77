"""Types of the collector of waits: its configuration, sums, rows of its maps."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import add, attrgetter, sub
from typing import Final, Literal, NamedTuple, Self

from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profilers.labels import key_hashes
from ebpfprof.profilers.options import Options
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

Waiting = Literal["block", "mutex", "thread", "wakers", "runqueue"]
"""What a stack did: it waited (block), released a lock (mutex), or woke a goroutine: as a goroutine
(wakers; in the kernel one with those of mutex) or as a thread that ran none. A sum of wakers is one
of a pair of stacks, one of runqueue of a stack that waited."""


@dataclass(frozen=True, slots=True)
class WaitsConfig:
    """What to record: `block`, `mutex` or both; `wakers` only beside `block`.

    `block_rate_ns` is Go's block profile rate: it records all waits of at least this length, and
    shorter ones with a probability of length / rate; 1 records every wait. `mutex_fraction`
    records one release in so many. With `by_lock`, sums are kept by lock, and waits for locks are
    recorded even without `block`. With `runtime_locks`, the mutex profile includes the Go runtime's
    own locks. With `labels`, sums are kept by the goroutines' labels: those whose keys have the
    hashes `label_keys` (labels.key_hashes), or all for ().
    """

    block: bool
    mutex: bool
    block_rate_ns: int = 1
    mutex_fraction: int = 1
    by_lock: bool = False
    few_locks: bool = False
    """With by_lock: tell only some locks apart, for sums that are read again and again."""
    runtime_locks: bool = False
    wakers: bool = False
    """Whether to record who woke whom, beside `block`."""
    labels: bool = True
    label_keys: tuple[int, ...] = ()
    earlier_waits: bool = False
    """Whether waits that began before the recording count, with their time in it."""
    one_in_eight: bool = False
    """Whether one wait in eight may be recorded in place of every one."""
    run_queue: bool = False
    """Whether to record how long goroutines are in the run queue, too."""

    @property
    def tracks_waits(self) -> bool:
        """Whether the program has the probes of one wait in eight, too."""
        return self.one_in_eight or self.run_queue

    @property
    def has_waiters(self) -> bool:
        """Whether there are sums of stacks that waited."""
        return self.block or self.by_lock

    @classmethod
    def of(cls, options: Options) -> Self:
        """The configuration for these options."""
        return cls(
            block=bool({"block", "wakers", "runqueue"} & set(options.kinds)),
            mutex="mutex" in options.kinds,
            block_rate_ns=options["block_rate_ns"],
            mutex_fraction=options["mutex_fraction"],
            by_lock=bool(options["by_lock"] or options["lock_labels"]),
            few_locks=not options["by_lock"],
            runtime_locks=bool(options["runtime_locks"]),
            wakers="wakers" in options.kinds,
            labels=options.labels != (),
            label_keys=key_hashes(options.labels),
            earlier_waits=bool(options["earlier_waits"]),
            one_in_eight=options.samples_waits,
            run_queue="runqueue" in options.kinds,
        )


class Waker(NamedTuple):
    """The stack that woke a goroutine, by return addresses, innermost first.

    `kind` is "wakers" for a goroutine's stack, "thread" for that of a thread without a goroutine.
    """

    kind: Waiting
    return_pcs: tuple[int, ...]


NO_WAKER: Final = Waker("wakers", ())
"""A waker that is not known."""


@dataclass(slots=True)  # not frozen: making a frozen one takes three times as long
class StackTotal:
    """How often and how long one stack of one target waited (block) or made others wait (mutex).

    Or one stack that one other woke (wakers): `waker` is that one.

    `return_pcs` are return addresses, innermost first: from the park, or from the wake in
    semrelease1. `sema` is the address of the lock's semaphore with by_lock, else 0. With sampling,
    `count` is no integer: a short wait stands for several. `labels` are those of the goroutine that
    waited or released.
    """

    kind: Waiting
    sema: int
    return_pcs: tuple[int, ...]
    count: float
    delay_ns: int
    labels: tuple[Label, ...] = ()
    delay_variance: float = 0.0
    """The variance of delay_ns (ns²), if it is an estimate."""
    waker: Waker | None = None
    count_variance: float = 0.0
    """The variance of count, if it is an estimate."""
    lengths: WaitHistogram = NO_LENGTHS
    """How long these waits were, as far as that is known."""


@dataclass(frozen=True, slots=True)
class Hold:
    """How often, and how long in all, a lock was held between two hand-overs that we recorded.

    `lengths` has these holds by their lengths.
    """

    count: int = 0
    held_ns: int = 0
    lengths: WaitHistogram = NO_LENGTHS

    def plus(self, more: Hold) -> Hold:
        """Both together."""
        lengths = self.lengths + more.lengths
        return Hold(self.count + more.count, self.held_ns + more.held_ns, lengths)


@dataclass(frozen=True, slots=True)
class LastWait:
    """The last wait of a goroutine: when it began (CLOCK_MONOTONIC), and whether it `waits` still.

    `woken_ns` is the time of its last wake, 0 if there was none. After a wake in semacquire1, a
    goroutine may park again in the same wait.
    """

    start_ns: int
    waits: bool
    woken_ns: int = 0
    is_seeded: bool = False
    """It began before the recording; `start_ns` is when that began."""


class KnownStack(NamedTuple):
    """A stack for which there are sums: a row of the map `stacks`; or, with `waker`, of `pairs`."""

    target: int
    kind: Waiting
    sema: int
    return_pcs: tuple[int, ...]
    labels: tuple[Label, ...]
    waker: Waker | None = None


@dataclass(frozen=True, slots=True)
class StackSums:
    """The sums of one stack in the kernel: what all events add up to, and more of tracked waits.

    A tracked wait adds eight times its own to `count` and `delay_ns` (bpf/waits/one_in_eight.h).
    There were `parks` of them, and the begin of `probed` ones was noted by a probe. Of `unknown`
    ones only the end was seen; these are not in the sums. After `runs` of them we saw the goroutine
    begin to run, `runnable_ns` after the wakes in all. `again` of these were followed by another
    park of the same event; `again_ns` is how long they were in the run queue before that.
    `squares` is the sum of the squares of their delays (ns²), `row_squares` that of the number of
    waits in a row that a goroutine had with this stack. `lengths` has the waits of `count` by
    their lengths, `runnable_lengths` those `runs` by the time in the run queue.
    """

    count: float = 0.0
    delay_ns: float = 0.0
    parks: float = 0.0
    probed: float = 0.0
    unknown: float = 0.0
    runs: float = 0.0
    runnable_ns: float = 0.0
    again: float = 0.0
    again_ns: float = 0.0
    row_squares: float = 0.0
    squares: float = 0.0
    lengths: WaitHistogram = NO_LENGTHS
    runnable_lengths: WaitHistogram = NO_LENGTHS

    def __add__(self, other: StackSums) -> StackSums:
        return StackSums(*map(add, _values(self), _values(other)))

    def __sub__(self, other: StackSums) -> StackSums:
        return StackSums(*map(sub, _values(self), _values(other)))

    def as_events(self, seen: StackSums) -> StackSums:
        """The sums with a park that another one followed as a part of one event.

        `seen` has the parks of this stack after which we saw the goroutine begin to run.
        """
        if not seen.runs:
            return self
        tracked = TRACKING_PERIOD * self.parks / seen.runs
        return replace(
            self,
            count=self.count - tracked * seen.again,
            delay_ns=self.delay_ns + tracked * seen.again_ns,
        )

    def times(self, factor: float) -> StackSums:
        """The sums multiplied."""
        return StackSums(*[factor * value for value in _values(self)])


_values = attrgetter(*(field.name for field in fields(StackSums)))  # astuple() is ten times slower
