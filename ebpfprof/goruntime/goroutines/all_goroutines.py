"""All goroutines of a target at this moment, whatever they do, with their stacks.

We read them from the target's memory while it runs: the table of goroutines, then stacks, and again
those of goroutines that moved meanwhile (stack_copies).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.channels import channels_of
from ebpfprof.goruntime.goroutines.fields import g_record, waits_in
from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.goroutines.stack_copies import StackPlaces
from ebpfprof.goruntime.goroutines.stack_reader import StackReader
from ebpfprof.goruntime.goroutines.stack_starts import StackStarts
from ebpfprof.goruntime.goroutines.stack_walk import Walk
from ebpfprof.goruntime.goroutines.states import (
    LEAKED,
    PARKED,
    RUNNABLE,
    SCAN,
    CountedWaits,
    StateNames,
    are_there,
)
from ebpfprof.goruntime.goroutines.table import MAX_GOROUTINES, GoroutineTable, Heads
from ebpfprof.process.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.stack_copies import Copies
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.goroutines import Channel
    from ebpfprof.profile.model import Label

    Rows = npt.NDArray[np.int64]

_PAUSES_S: Final = (0, 0, 0, 0)  # before attempts
_MOST_FRAMES: Final = 1 << 14  # of a stack
_MOST_FRAMES_IN_MEMORY: Final = 1 << 18  # of all stacks beyond their copies, read one by one
_BUBBLES: Final = ("bubble", "group")  # Go 1.25 on, and 1.24
_NO_STACK: Final = Walk((), is_whole=False)


class _Head(NamedTuple):
    """What a Goroutine needs of its runtime.g."""

    status: int
    goid: int
    sequence: int
    wait_since: int
    reason: int
    locked: int
    parent: int
    created_pc: int
    start_pc: int
    labels: int


class Words(NamedTuple):
    """Words of a runtime.g, for what is to be found out beyond the stack; 0 where there are none.

    `sp`, `bp` and `hi` are the stack's: its pointer, its frame pointer, its end. `thread` is g.m,
    `timer` g.timer, `sleep_when` g.sleepWhen (Go 1.23 on), `waiting` g.waiting. `bubble` is not 0
    for a goroutine with a clock of its own (testing/synctest, Go 1.24 on).
    """

    sp: int
    bp: int
    hi: int
    thread: int
    timer: int
    sleep_when: int
    waiting: int
    bubble: int


@dataclass(frozen=True, slots=True)
class Goroutine:
    """A goroutine at the moment of the scan.

    `state` is the word of Go's own tracebacks: "running", "chan receive". `is_parked` shows that it
    waits for another goroutine, the runtime or the network, and for no system call, and that
    `sequence` tells this wait from the next: see stack_starts.CountedWaits. `pcs` are runtime
    addresses, innermost first: where it will continue, then return addresses; () for one that runs,
    whose stack is in registers of its processor. `is_whole` shows that they reach the outermost
    function. `waited_ns` is how long ago the garbage collector saw it in this wait or system call
    first, 0 if it has not: a lower bound (runtime/mgcmark.go, markroot); of a wait in a coroutine,
    0. `created_pc` is the return address of its `go` statement, 0 for the main goroutine; `parent`
    the goroutine that executed it, 0 before Go 1.21. `start_pc` is the entry of its outermost
    function. `labels` are None if they could not be read. `is_leaked` says that the runtime found
    that it can never continue (runtime/mgc.go, _Gleaked, Go 1.26 on).
    """

    address: int
    goid: int
    state: str
    pcs: tuple[int, ...]
    is_whole: bool
    waited_ns: int
    is_parked: bool
    is_locked: bool
    parent: int
    created_pc: int
    start_pc: int
    sequence: int
    labels: tuple[Label, ...] | None
    channels: tuple[Channel, ...]
    is_leaked: bool
    words: Words
    wait: int
    """The number of what it does: see fields.wait_of."""


@dataclass(frozen=True, slots=True)
class AllGoroutines:
    """The goroutines at `read_ns` (CLOCK_MONOTONIC), by their ids, and what is missing.

    `moved` counts those that changed at each attempt to read their stacks: their `pcs` are ().
    `beyond` counts goroutines beyond the limit of what we read. `waits` has what goroutines do by
    slot of the table, as table.Heads. `ahead_ns` is by how much the
    target's clock is ahead of ours, in a time namespace; None if that can't be known.
    """

    goroutines: list[Goroutine]
    read_ns: int
    moved: int
    beyond: int
    waits: npt.NDArray[np.uint64]
    ahead_ns: int | None = 0


class GoroutineScanner:
    """Reads all goroutines of a target, any number of times. Closes the target's memory."""

    def __init__(
        self, go: GoTarget, *, has_labels: bool = True, most: int = MAX_GOROUTINES
    ) -> None:
        """Open the target's memory. Read at most that many goroutines, the first of the list.

        Raises TargetGone, PermissionDenied or GoTableError (there is no list of goroutines).
        """
        self._go = go
        self._memory = go.target.memory
        layout = go.binary.layout
        self._table = GoroutineTable(
            self._memory, go.binary, go.load_bias, "sp", "hi", "created_pc", most=most
        )
        self._stacks = StackReader(
            go, self._memory, most=_MOST_FRAMES, most_in_memory=_MOST_FRAMES_IN_MEMORY
        )
        self._labels = LabelReader(self._memory, layout) if has_labels else None
        self._record = g_record(layout)
        self._names = frozenset(self._record.names or ())
        self._starts = StackStarts(go.binary, go.load_bias)
        self._states = StateNames(layout)
        self._counted = CountedWaits(layout)
        self._ahead_ns = go.target.clock_ahead_ns()

    def scan(self) -> AllGoroutines:
        """Read all goroutines now. Raises TargetGone or UnreadableMemory."""
        heads = self._table.read()
        read_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        is_there = heads.is_there
        addresses = heads.addresses[is_there]
        records, walks = self._read(heads)
        waits = np.zeros(len(heads.waits), np.uint64)
        waits[is_there] = waits_in(records)
        moved = sum(walk is None for walk in walks)
        channels = self._channels(addresses, records)
        goroutines = [
            self._goroutine(address, head, walk or _NO_STACK, channels, read_ns, words, wait)
            for address, head, walk, words, wait, is_one in zip(
                addresses.tolist(),
                map(_Head, *self._columns(records, *_Head._fields)),
                walks,
                self._words(records),
                waits[is_there].tolist(),
                are_there(records).tolist(),
                strict=True,
            )
            if is_one  # it may have ended since the table was read
        ]
        goroutines.sort(key=lambda goroutine: goroutine.goid)
        return AllGoroutines(goroutines, read_ns, moved, heads.beyond, waits, self._ahead_ns)

    def read_table(self) -> Heads:
        """The table of goroutines alone: it takes a fraction of the time of scan().

        Raises TargetGone or UnreadableMemory.
        """
        return self._table.read()

    @property
    def counted(self) -> CountedWaits:
        """Of which of the target's goroutines g.trackingSeq counts the waits."""
        return self._counted

    @property
    def memory(self) -> Memory:
        """The target's memory, open until close()."""
        return self._memory

    def _read(self, heads: Heads) -> tuple[npt.NDArray[Any], list[Walk | None]]:
        """The runtime.g of the goroutines of a table, and their stacks.

        None for the stack of one that moved at each attempt.
        """
        is_there = heads.is_there
        count = int(np.count_nonzero(is_there))
        none = np.zeros(count, np.uint64)
        places = StackPlaces(
            heads.addresses[is_there], heads["sp"][is_there], heads["hi"][is_there], none, none
        )
        records = np.zeros(count, self._record)
        walks: list[Walk | None] = [None] * count

        def use(numbers: Rows, copies: Copies) -> npt.NDArray[np.bool_]:
            records[numbers] = copies.g
            is_good, good = self._walks(copies)
            for number, walk in zip(numbers[is_good].tolist(), good, strict=True):
                walks[number] = walk
            return is_good

        self._stacks.begin()
        self._stacks.copier.read_until_settled(places, use, _PAUSES_S)
        self._stacks.copier.forget()  # perhaps until the next window
        return records, walks

    def _walks(self, copies: Copies) -> tuple[npt.NDArray[np.bool_], list[Walk]]:
        """Which of these copies belong to their runtime.g, and the stacks of those."""
        is_good = copies.is_settled
        rows = np.flatnonzero(is_good)
        stacks = self._stacks.stacks(copies, rows, copies.is_exact[rows])
        walks = []
        for row, stack in zip(rows.tolist(), stacks, strict=True):
            walks.append(stack.walk)
            is_good[row] = stack.is_exact or not copies.sps[row]
        return is_good, [
            walk for walk, row in zip(walks, rows.tolist(), strict=True) if is_good[row]
        ]

    def _goroutine(
        self,
        address: int,
        head: _Head,
        walk: Walk,
        channels: Mapping[int, tuple[Channel, ...]],
        read_ns: int,
        words: Words,
        wait: int,
    ) -> Goroutine:
        status = head.status & ~SCAN
        is_parked = self._counted.has(status, head.reason)
        since_ns = head.wait_since if self._ahead_ns is not None else 0
        if status in PARKED and not is_parked:
            since_ns = 0
        now_ns = read_ns + (self._ahead_ns or 0)  # by the target's clock
        return Goroutine(
            address,
            head.goid,
            self._states.of(status, head.reason),
            walk.pcs,
            walk.is_whole,
            max(0, now_ns - since_ns) if since_ns > 0 and status != RUNNABLE else 0,
            is_parked,
            head.locked != 0,
            head.parent,
            head.created_pc,
            head.start_pc,
            head.sequence,
            self._labels.read_if_there(head.labels) if self._labels else (),
            channels.get(address, ()),
            status == LEAKED,
            words,
            wait,
        )

    def _columns(self, records: npt.NDArray[Any], *names: str) -> Iterator[list[int]]:
        """The fields as lists; zeros for one that this version of Go does not have."""
        for name in names:
            yield records[name].tolist() if name in self._names else [0] * len(records)

    def _words(self, records: npt.NDArray[Any]) -> Iterator[Words]:
        _, sps, bps = self._starts.of(records)
        bubble = next((name for name in _BUBBLES if name in self._names), _BUBBLES[0])
        names = ("hi", "thread", "timer", "sleep_when", "waiting", bubble)
        return map(Words, sps.tolist(), bps.tolist(), *self._columns(records, *names))

    def _channels(
        self, addresses: npt.NDArray[np.uint64], records: npt.NDArray[Any]
    ) -> dict[int, tuple[Channel, ...]]:
        """The channels of goroutines that wait for any, by the address of their runtime.g."""
        is_parked = np.isin(records["status"] & ~np.uint32(SCAN), PARKED) & (
            records["waiting"] != 0
        )
        waiting = zip(
            addresses[is_parked].tolist(), records["waiting"][is_parked].tolist(), strict=True
        )
        return channels_of(self._memory, self._go.binary.layout, dict(waiting))
