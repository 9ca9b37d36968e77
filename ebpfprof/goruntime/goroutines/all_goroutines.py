"""All goroutines of a target at this moment, whatever they do, with their stacks.

We read them from the target's memory while it runs, all at once: first the heads of all runtime.g,
then a piece of each stack, then the heads again. A head that is the same before and after belongs
to the stack; we look again at goroutines that moved. The order in which the runtime writes is in
runtime/proc.go (gopark, park_m, execute), asm_amd64.s (mcall, gogo) and stack.go (copystack), Go
1.19 to 1.27.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.channels import channels_of
from ebpfprof.goruntime.goroutines.fault_stacks import FaultStacks
from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.goroutines.reader import GoroutineReader, Unsteady
from ebpfprof.goruntime.goroutines.stack_starts import (
    GONE,
    LEAKED,
    PARKED,
    RUNNABLE,
    SCAN,
    CountedWaits,
    StackStarts,
    StateNames,
    head_of,
)
from ebpfprof.goruntime.goroutines.stack_walk import WINDOW_BYTES, Walk, walk_all
from ebpfprof.process.memory import Memory, UnreadableMemory
from ebpfprof.profile.wait_times import wait_numbers
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.goroutines import Channel
    from ebpfprof.profile.model import Label

_LOOKS: Final = 4
_MAX_DEPTH: Final = 1 << 14
_MAX_FAR_FRAMES: Final = 1 << 18  # of all stacks beyond their windows, which we read one by one
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
    """A goroutine at the moment of the look.

    `state` is the word of Go's own tracebacks: "running", "chan receive". `is_parked` tells that it
    waits for another goroutine, the runtime or the network, and for no system call, and that
    `sequence` tells this wait from the next: see stack_starts.CountedWaits. `pcs` are
    runtime addresses, innermost first: where it will go on, then return addresses; () for one that
    runs, whose stack is in registers of its processor. `is_whole` tells that they reach the
    outermost function. `waited_ns` is how long ago the garbage collector saw it in this wait or
    system call first, 0 if it has not: a lower bound (runtime/mgcmark.go, markroot); of a wait in a
    coroutine, 0. `created_pc`
    is the return address of its `go` statement, 0 for the main goroutine; `parent` the goroutine
    that executed it, 0 before Go 1.21. `start_pc` is the entry of its outermost function.
    `labels` are None if they could not be read. `is_leaked` says that the runtime found that it can
    never go on (runtime/mgc.go, _Gleaked, Go 1.26 on).
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


@dataclass(frozen=True, slots=True)
class AllGoroutines:
    """The goroutines at `read_ns` (CLOCK_MONOTONIC), by their ids, and what is missing.

    `moved` counts those that changed at each attempt to read their stacks: their `pcs` are ().
    `beyond` counts goroutines beyond the limit of what we read. `ahead_ns` is by how much the
    target's clock is ahead of ours, in a time namespace; None if that can't be known.
    """

    goroutines: list[Goroutine]
    read_ns: int
    moved: int
    beyond: int
    ahead_ns: int | None = 0


class GoroutineScanner(Closing):
    """Reads all goroutines of a target, any number of times. Closes the target's memory."""

    def __init__(self, go: GoTarget, *, has_labels: bool = True, most: int | None = None) -> None:
        """Open the target's memory. Read at most so many goroutines, the first of the list.

        Raises TargetGone, PermissionDenied or GoTableError (there is no list of goroutines).
        """
        self._go, self._most = go, most
        self._memory = Memory(go.target)
        self._list = GoroutineReader(go, self._memory, has_labels=False)
        layout = go.binary.layout
        self._labels = LabelReader(self._memory, layout) if has_labels else None
        self._head = head_of(layout)
        self._names = frozenset(self._head.names or ())
        self._starts = StackStarts(go)
        self._states = StateNames(layout)
        self._counted = CountedWaits(layout)
        self._ahead_ns = go.target.clock_ahead_ns()
        self._frames_left = 0
        self._faults = FaultStacks(go, self._memory)
        self._callback_pc = go.callback.return_pc + go.load_bias if go.callback else -1

    def scan(self) -> AllGoroutines:
        """Read all goroutines now. Raises TargetGone or UnreadableMemory."""
        addresses, heads, beyond = self._heads()
        read_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self._frames_left = _MAX_FAR_FRAMES
        self._faults.begin()
        walks = self._walks(addresses, heads)
        moved = sum(walk is None for walk in walks)
        channels = self._channels(addresses, heads)
        goroutines = [
            self._goroutine(address, head, walk or _NO_STACK, channels, read_ns, words)
            for address, head, walk, words, is_there in zip(
                addresses.tolist(),
                map(_Head, *self._columns(heads, *_Head._fields)),
                walks,
                self._words(heads),
                _are_there(heads).tolist(),
                strict=True,
            )
            if is_there  # it may have ended since the first look
        ]
        goroutines.sort(key=lambda each: each.goid)
        return AllGoroutines(goroutines, read_ns, moved, beyond, self._ahead_ns)

    def parked(self) -> dict[int, tuple[int, int]]:
        """Which goroutines are parked now: by id, g.trackingSeq and where each will go on.

        Without those of which g.trackingSeq does not count the waits. It takes a fifth of the time
        of scan(). Raises TargetGone or UnreadableMemory.
        """
        heads = self._parked_heads()
        waits = zip(heads["sequence"].tolist(), heads["pc"].tolist(), strict=True)
        return dict(zip(heads["goid"].tolist(), waits, strict=True))

    def born(self) -> dict[int, int]:
        """All goroutines now: by id, the return address of the `go` statement that created each.

        Raises TargetGone or UnreadableMemory.
        """
        _, heads, _ = self._heads()
        goids, pcs = self._columns(heads, "goid", "created_pc")
        return dict(zip(goids, pcs, strict=True))

    def parked_waits(self) -> npt.NDArray[np.uint64]:
        """The same as numbers of waits, sorted: see profile.wait_times. Raises as parked()."""
        heads = self._parked_heads()
        return wait_numbers(heads["goid"], heads["sequence"])

    def _parked_heads(self) -> npt.NDArray[Any]:
        _, heads, _ = self._heads()
        parked: npt.NDArray[Any] = heads[self._counted.of(heads["status"], heads["reason"])]
        return parked

    def _heads(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[Any], int]:
        """The address and the runtime.g of each goroutine, and how many we did not read."""
        found, beyond = self._list.all_goroutines()
        most = len(found) if self._most is None else self._most
        beyond += max(0, len(found) - most)
        addresses = np.array(found[:most], np.uint64)
        heads = self._memory.read_records(addresses, self._head)
        is_there = _are_there(heads)
        return addresses[is_there], heads[is_there], beyond

    @property
    def memory(self) -> Memory:
        """The target's memory, open until close()."""
        return self._memory

    def close(self) -> None:
        """Close the target's memory."""
        self._memory.close()

    def _walks(
        self, addresses: npt.NDArray[np.uint64], heads: npt.NDArray[Any]
    ) -> list[Walk | None]:
        """The stack of each goroutine; None for one that moved at each attempt.

        Puts the heads that belong to the stacks into `heads`.
        """
        walks: list[Walk | None] = [None] * len(heads)
        waiting = np.arange(len(heads))
        for attempt in range(_LOOKS):
            if attempt:
                heads[waiting] = self._memory.read_records(addresses[waiting], self._head)
            before = heads[waiting]
            pcs, sps, bps = self._starts.of(before)
            # Without a stack, any readable address will do.
            places = np.where(sps != 0, sps, addresses[waiting])
            windows = self._memory.read_records(places, np.dtype((np.void, WINDOW_BYTES)))
            found = walk_all(before["hi"], pcs, sps, bps, windows)
            for number, walk in enumerate(found):
                if walk is None or self._callback_pc in walk.pcs:
                    starts = (int(each[number]) for each in (before["hi"], pcs, sps, bps))
                    walk = found[number] = self._walk(*starts)
                if self._faults.has_fault(walk.pcs):
                    hi, pc, sp = (int(each[number]) for each in (before["hi"], pcs, sps))
                    found[number] = self._faults.walk(hi, pc, sp, most=_MAX_DEPTH) or walk
            is_same = self._memory.read_records(addresses[waiting], self._head) == before
            is_settled = is_same | (sps == 0)  # those that run have no stack to read
            for at, walk, is_good in zip(waiting.tolist(), found, is_settled.tolist(), strict=True):
                if is_good:
                    walks[at] = walk
            waiting = waiting[~is_settled]
            if not len(waiting):
                break
        return walks

    def _walk(self, hi: int, pc: int, sp: int, bp: int) -> Walk:
        """A stack that is larger than its window, or in which C called back."""
        try:
            pcs, is_whole = self._list.walk(hi, sp, bp, most=min(_MAX_DEPTH, self._frames_left))
        except (Unsteady, UnreadableMemory):
            return Walk((pc,), is_whole=False)
        self._frames_left -= len(pcs)
        return Walk((pc, *pcs), is_whole)

    def _goroutine(
        self,
        address: int,
        head: _Head,
        walk: Walk,
        channels: Mapping[int, tuple[Channel, ...]],
        read_ns: int,
        words: Words,
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
        )

    def _columns(self, heads: npt.NDArray[Any], *names: str) -> Iterator[list[int]]:
        """The fields of all heads as lists; zeros for one that this version of Go does not have."""
        for name in names:
            yield heads[name].tolist() if name in self._names else [0] * len(heads)

    def _words(self, heads: npt.NDArray[Any]) -> Iterator[Words]:
        _, sps, bps = self._starts.of(heads)
        bubble = next((name for name in _BUBBLES if name in self._names), _BUBBLES[0])
        names = ("hi", "thread", "timer", "sleep_when", "waiting", bubble)
        return map(Words, sps.tolist(), bps.tolist(), *self._columns(heads, *names))

    def _channels(
        self, addresses: npt.NDArray[np.uint64], heads: npt.NDArray[Any]
    ) -> dict[int, tuple[Channel, ...]]:
        """The channels of goroutines that wait for any, by the address of their runtime.g."""
        is_parked = np.isin(heads["status"] & ~np.uint32(SCAN), PARKED) & (heads["waiting"] != 0)
        waiting = zip(
            addresses[is_parked].tolist(), heads["waiting"][is_parked].tolist(), strict=True
        )
        return channels_of(self._memory, self._go.binary.layout, dict(waiting))


def _are_there(heads: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of these are goroutines; the others are dead, or not begun."""
    gone = np.isin(heads["status"] & ~np.uint32(SCAN), GONE)
    found: npt.NDArray[np.bool_] = ~gone & (heads["goid"] != 0)
    return found
