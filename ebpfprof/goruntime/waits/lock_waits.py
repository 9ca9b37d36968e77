"""For which lock of package sync each parked goroutine waits: its address, its type, its state.

Those in runtime.semacquire1 have the address of the semaphore on their stacks (symbolizer's
codeanalysis/semaphores); those in runtime.notifyListWait that of the list (runtime/sema.go, Go 1.19
to 1.27).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.fields import IDENTITY, g_record, waits_in
from ebpfprof.goruntime.records import record
from ebpfprof.goruntime.waits.lock_uses import MUTEX, RW_MUTEX, use_of
from symbolizer.locks.names import Caller

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.goroutines.frames import StackFrames
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
WAIT_GROUP: Final = "sync.WaitGroup"
COND: Final = "sync.Cond"
WRITER_SEMAPHORE: Final = 8  # in a RWMutex: the writer waits for readers (lock_uses)
# In Go 1.17 (sync/waitgroup.go) the semaphore of a WaitGroup whose address is no multiple of eight
# is elsewhere. That one is left out.
_GROUP_ALIGNMENT: Final = 8
_WAIT_FOR_GROUP: Final = "sync.(*WaitGroup).Wait"
_NOTIFY_LIST: Final = ("runtime.notifyListWait", "sync.runtime_notifyListWait")
_IN_COND: Final = "sync.(*Cond)."
_MAX_PARK_FRAMES: Final = 4  # runtime.gopark, goparkunlock, and what calls them
_SLOT: Final = 16  # of a function's first argument, from its frame pointer
_DEPTH: Final = 24  # of a stack, within which the lock's functions are
_MAX_STACKS: Final = 1 << 14  # that are known
_MAX_WAITERS: Final = 1 << 16  # of one sync.Cond that we follow
_SUDOG: Final = (("g", "g", "<u8"), ("next", "next", "<u8"), ("elem", "elem", "<u8"))
_WORD: Final = np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class LockWait:
    """A wait for the lock at `address`.

    `sema_offset` is that of the semaphore in it, in bytes. `caller` called Lock or Wait, in the
    physical frame number `frame` of the stack.
    """

    address: int
    type: str
    sema_offset: int
    caller: Caller | None
    frame: int


class WordPlace(NamedTuple):
    """Where stacks of a kind have the address: beside the frame pointer of the frame `number`.

    The rest is as in LockWait.
    """

    number: int
    offset: int
    type: str
    sema_offset: int
    caller: Caller | None
    frame: int


class LockWaitReader:
    """Reads for which locks the goroutines of one target wait, any number of times."""

    def __init__(self, go: GoTarget, memory: Memory, frames: StackFrames) -> None:
        self._go, self._memory, self._frames = go, memory, frames
        self._places = LockPlaces(go, frames)

    def read(self, goroutines: Sequence[Goroutine]) -> dict[int, LockWait]:
        """The waits for locks, by the address of the runtime.g.

        A goroutine that moved meanwhile is missing. Raises TargetGone or GoTableError.
        """
        parked = [
            goroutine for goroutine in goroutines if goroutine.is_parked and goroutine.words.bp
        ]
        stacks = {goroutine.pcs[:_DEPTH] for goroutine in parked}
        unknown = {pcs for pcs in stacks if not self._places.knows(pcs)}
        self._frames.look_up(pc for pcs in unknown for pc in pcs)
        places = {pcs: place for pcs in stacks if (place := self._places.place(pcs))}
        waiting = [
            (goroutine, place)
            for goroutine in parked
            if (place := places.get(goroutine.pcs[:_DEPTH])) is not None
        ]
        if not waiting:
            return {}
        chosen, placed = zip(*waiting, strict=True)
        words = _argument_words(self._memory, chosen, placed)
        _find_conditions(self._go, self._memory, chosen, placed, words)
        is_same = _have_not_moved(self._go, self._memory, chosen)
        return {
            goroutine.address: LockWait(
                word - place.sema_offset, place.type, place.sema_offset, place.caller, place.frame
            )
            for goroutine, place, word, good in zip(
                chosen, placed, words.tolist(), is_same.tolist(), strict=True
            )
            if good
            and word > place.sema_offset
            and (place.type != WAIT_GROUP or word % _GROUP_ALIGNMENT == 0)
        }


class LockPlaces:
    """Finds by the return addresses of a stack for what kind of lock it waits, and where its
    address is. Looks up each stack once."""

    def __init__(self, go: GoTarget, frames: StackFrames) -> None:
        self._frames = frames
        self._semaphores = go.sites.semaphores
        layout = go.binary.layout
        self._group_offset = layout.offset(WAIT_GROUP, "sema")
        self._notify_offset = layout.offset(COND, "notify")
        bias, parks = go.load_bias, go.sites.parks
        self._semacquires = {park.return_pc + bias for park in parks if park.is_semaphore}
        self._conditions = {
            site.return_pc + bias for site in parks if site.operation in _NOTIFY_LIST
        }
        self._known: dict[tuple[int, ...], WordPlace | None] = {}

    def knows(self, pcs: tuple[int, ...]) -> bool:
        """Whether place() needs no frames: of a known stack, or of one that waits for no lock."""
        return pcs in self._known or self._number(pcs) is None

    def place(self, pcs: tuple[int, ...]) -> WordPlace | None:
        """What is known by the stack; None for one that waits for no lock. Raises GoTableError."""
        if pcs not in self._known:
            if len(self._known) >= _MAX_STACKS:
                self._known.clear()
            self._known[pcs] = self._place(pcs)
        return self._known[pcs]

    def _number(self, pcs: tuple[int, ...]) -> int | None:
        """The frame that parks for a semaphore or a condition; None for one of other stacks."""
        for number, pc in enumerate(pcs[:_MAX_PARK_FRAMES]):
            if pc in self._semacquires or pc in self._conditions:
                return number
        return None

    def _place(self, pcs: tuple[int, ...]) -> WordPlace | None:
        index = self._number(pcs)
        if index is None:
            return None
        calls = self._frames.logical(pcs)
        if pcs[index] in self._semacquires:
            return self._in_semaphore(index, calls) if self._semaphores else None
        outside = self._first_outside(calls, index, _IN_COND)
        return WordPlace(index, _SLOT, COND, self._notify_offset, *outside)

    def _in_semaphore(self, index: int, calls: Sequence[tuple[int, Any]]) -> WordPlace | None:
        assert self._semaphores
        offset = self._semaphores.address_offset
        use = use_of([frame for _, frame in calls])
        if use:
            frame = next(
                (
                    number
                    for number, call in calls
                    if use.caller
                    and (call.function, call.pc) == (use.caller.function, use.caller.pc)
                ),
                len(calls),
            )
            return WordPlace(index, offset, use.type, use.sema_offset, use.caller, frame)
        if any(frame.function == _WAIT_FOR_GROUP for _, frame in calls):
            outside = self._first_outside(calls, index, _WAIT_FOR_GROUP)
            return WordPlace(index, offset, WAIT_GROUP, self._group_offset, *outside)
        return None

    @staticmethod
    def _first_outside(
        calls: Sequence[tuple[int, Any]], index: int, inside: str
    ) -> tuple[Caller | None, int]:
        """The function that called the last one whose name begins with `inside`."""
        last = max(
            (i for i, (_, call) in enumerate(calls) if call.function.startswith(inside)), default=-1
        )
        if last + 1 >= len(calls) or last < 0:
            return None, index
        number, frame = calls[last + 1]
        return Caller(frame.function, frame.pc), number


def frame_pointers(
    memory: Memory, goroutines: Sequence[Goroutine], numbers: Sequence[int]
) -> npt.NDArray[np.uint64]:
    """The frame pointer of the physical frame of that number of each stack; 0 if there is none."""
    bps = np.array([goroutine.words.bp for goroutine in goroutines], np.uint64)
    his = np.array([goroutine.words.hi for goroutine in goroutines], np.uint64)
    left = np.array(numbers)
    while (left > 0).any():
        rows = np.flatnonzero(left > 0)
        callers = memory.read_records(bps[rows], _WORD)
        is_above = (callers > bps[rows]) & (callers < his[rows])
        bps[rows] = np.where(is_above, callers, 0)
        left[rows] -= 1
    return bps


def _argument_words(
    memory: Memory, chosen: Sequence[Goroutine], places: Sequence[WordPlace]
) -> npt.NDArray[np.uint64]:
    bps = frame_pointers(memory, chosen, [place.number for place in places])
    offsets = np.array([place.offset for place in places], np.int64)
    read = memory.read_records((bps.astype(np.int64) + offsets).astype(np.uint64), _WORD)
    words: npt.NDArray[np.uint64] = np.where(bps != 0, read, 0).astype(np.uint64)
    return words


def _find_conditions(
    go: GoTarget,
    memory: Memory,
    chosen: Sequence[Goroutine],
    places: Sequence[WordPlace],
    words: npt.NDArray[np.uint64],
) -> None:
    """Puts the lists of those in sync.Cond.Wait into `words`, 0 where none has the goroutine.

    From Go 1.26 on the goroutine's sudog has the address. Before, it is where the compiler keeps an
    argument, unless it does not need to: a list is right if the goroutine is in it.
    """
    layout = go.binary.layout
    rows = [index for index, place in enumerate(places) if place.type == COND]
    sudogs = np.array([chosen[index].words.waiting for index in rows], np.uint64)
    records = memory.read_records(sudogs, record(layout, "sudog", _SUDOG))
    members: dict[int, frozenset[int]] = {}
    for index, sudog, own in zip(rows, sudogs.tolist(), records, strict=True):
        address = chosen[index].address
        guess = int(own["elem"]) if sudog and int(own["g"]) == address else int(words[index])
        if guess not in members:
            members[guess] = _waiters(go, memory, guess)
        words[index] = guess if address in members[guess] else 0


def _waiters(go: GoTarget, memory: Memory, address: int) -> frozenset[int]:
    """The addresses of the runtime.g in a runtime.notifyList."""
    layout = go.binary.layout
    kind = record(layout, "sudog", _SUDOG)
    head = record(layout, "notifyList", (("head", "head", "<u8"),))
    sudog_at = int(memory.read_records(np.array([address], np.uint64), head)["head"][0])
    waiters: set[int] = set()
    while sudog_at and len(waiters) < _MAX_WAITERS:
        sudog = memory.read_records(np.array([sudog_at], np.uint64), kind)[0]
        goroutine = int(sudog["g"])
        if not goroutine or goroutine in waiters:
            break  # the list changed, or is none
        waiters.add(goroutine)
        sudog_at = int(sudog["next"])
    return frozenset(waiters)


def _have_not_moved(
    go: GoTarget, memory: Memory, chosen: Sequence[Goroutine]
) -> npt.NDArray[np.bool_]:
    addresses = np.array([goroutine.address for goroutine in chosen], np.uint64)
    records = memory.read_records(addresses, g_record(go.binary.layout, *IDENTITY))
    same: npt.NDArray[np.bool_] = waits_in(records) == np.array(
        [goroutine.wait for goroutine in chosen], np.uint64
    )
    return same


def types_of(waits: Mapping[int, LockWait]) -> dict[int, str]:
    """The type of each lock, by its address.

    The Mutex in a RWMutex has the same address: one wait that tells RWMutex decides.
    """
    by_address = defaultdict[int, set[str]](set)
    for wait in waits.values():
        by_address[wait.address].add(wait.type)
    return {
        address: RW_MUTEX if RW_MUTEX in types else MUTEX if MUTEX in types else min(types)
        for address, types in by_address.items()
    }
