"""Turns return addresses of a wait or a release into the stack that Go's own profile would show.

Go drops its own bookkeeping from the top of a stack by skip counts (runtime/mprof.go, blockevent,
mutexevent and their callers). The dropped frames are always logical frames of the same names, so we
drop them by name, which works for inlined functions, too.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise, zip_longest
from operator import attrgetter, itemgetter

from ebpfprof.goruntime.goroutines.frames import call_pc
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.profile.model import Frame, Location, Mapping
from ebpfprof.profilers.waits.rows import Waiting
from symbolizer import Frame as GoFrame
from symbolizer import FuncRole

_PARKS = frozenset({"runtime.gopark", "runtime.goparkunlock"})
# Operations that Go drops; it keeps runtime.selectgo, which passes a smaller skip count.
_OPERATIONS = frozenset(
    {
        "runtime.chansend",
        "runtime.chanrecv",
        "runtime.notifyListWait",
        "sync.runtime_notifyListWait",
    }
)
# Records a release of one of the runtime's own locks: runtime/mprof.go, captureStack.
_UNLOCK = "runtime.unlock2"
_UNLOCK_SKIP = 2  # unlock2 and runtime.unlockWithRank
# Left out where the stack continues on the goroutine's own stack: it does not return.
_MORE_STACK = "runtime.morestack"
_THREAD_START = "runtime.mstart"
_THREAD_BODY = "runtime.mstart0"
_CGO_CALLBACK = "runtime.cgocallback"
_SEMACQUIRE = "runtime.semacquire1"
# sync and internal/poll call these. The runtime's own semaphores don't, and are no block events.
_SEMACQUIRE_SHIM = re.compile(r"[\w/]+\.runtime_Semacquire\w*")
_WAKES = frozenset({"runtime.goready", "runtime.readyWithTime"})
_WAKE_ON_THREAD = ".goready.func1"  # where goready is inlined, the name begins with its caller
# What a goroutine that wakes passes besides, below the operation that its program called.
_WAYS_TO_WAKES = _WAKES | {
    "runtime.semrelease",
    "runtime.semrelease1",
    "runtime.chansend",
    "runtime.chanrecv",
    "runtime.send",
    "runtime.recv",
    "runtime.notifyListNotifyAll",
    "runtime.notifyListNotifyOne",
    "sync.runtime_notifyListNotifyAll",
    "sync.runtime_notifyListNotifyOne",
}
_SEMRELEASE = "runtime.semrelease1"
_SEMRELEASE_SHIM = re.compile(r"[\w/]+\.runtime_Semrelease")
# skipframes of sync.(*Mutex).lockSlow and unlockSlow: 1 up to Go 1.23; 2 from 1.24 on
# (internal/sync). Of sync.(*RWMutex).rUnlockSlow: 1.
_SLOW_PATHS = (
    ("internal/sync.(*Mutex).lockSlow", "internal/sync.(*Mutex).Lock"),
    ("internal/sync.(*Mutex).unlockSlow", "internal/sync.(*Mutex).Unlock"),
    ("sync.(*Mutex).lockSlow",),
    ("sync.(*Mutex).unlockSlow",),
    ("sync.(*RWMutex).rUnlockSlow",),
)
# The return addresses at the leaf that decide what Go drops: two parks or wakes, the operation, its
# shim, two of a slow path; and two more.
_HEAD = 8
_END = "runtime.goexit"
_index_of = attrgetter("index")


@dataclass(frozen=True, slots=True)
class WaitStack:
    """A stack as Go's block or mutex profile shows it, leaf first; `is_cut` if Go cuts it off.

    Stacks are equal if their locations are equal. `key` is a hash of the locations' numbers: that
    takes a tenth of the time of hashing the locations.
    """

    locations: tuple[Location, ...]
    is_cut: bool = field(compare=False)
    key: int = field(compare=False)

    def __hash__(self) -> int:
        return self.key


@dataclass(slots=True)  # not frozen: making a frozen one takes three times as long
class _Logical:
    """A logical frame of the physical frame `index`; `frame` is None outside of Go code."""

    index: int
    pc: int
    frame: GoFrame | None

    @property
    def name(self) -> str:
        return self.frame.function if self.frame else ""

    @property
    def role(self) -> FuncRole:
        return self.frame.role if self.frame else FuncRole.NORMAL


class StackTranslator:
    """Turns the stacks of one target into locations. Looks up each address once."""

    def __init__(self, go: GoTarget) -> None:
        self._binary = go.binary
        self._load_bias = go.load_bias
        self._mappings = go.mappings
        self._runtime_locks = go.runtime_locks
        self._rules = go.binary.layout.profile_stacks
        # Go captures the stack where it records the event, a few lines below the park.
        self._recorded_pcs = {
            park.return_pc + go.load_bias: park.recorded_pc + go.load_bias
            for park in go.sites.parks
        }
        self._call_pcs: dict[int, int] = {}
        self._go_frames: dict[int, tuple[GoFrame, ...]] = {}  # keeps the ids below valid
        # Locations and their counts of logical frames, by number; and the numbers.
        self._locations: list[Location] = []
        self._logical_counts: list[int] = []
        self._numbers: dict[tuple[int, tuple[GoFrame, ...]], int] = {}
        self._of_frames: dict[tuple[int, ...], int] = {}  # by ids, which hash quickly
        self._stacks: dict[tuple[Waiting, tuple[int, ...]], WaitStack | None] = {}
        # Below the head of a stack, most return addresses have the same location in each stack:
        # these have it. Other addresses depend on their neighbours, or were not looked up yet.
        self._whole: dict[int, int] = {}
        self._ends: set[int] = set()
        self._heads: dict[tuple[Waiting, tuple[int, ...]], tuple[int, ...] | None] = {}

    def look_up(self, return_pcs: Iterable[int]) -> None:
        """Look up many addresses at once: ten times as fast as one by one.

        Raises GoTableError if the binary's tables contradict themselves.
        """
        new = set(return_pcs) - self._whole.keys()
        call_pcs = set(map(self._call_pc, new)) - self._go_frames.keys()
        frames = self._binary.frames_many(pc - self._load_bias for pc in call_pcs)
        self._go_frames.update((pc, frames[pc - self._load_bias]) for pc in call_pcs)
        self._sort_out(new)

    def stack(self, kind: Waiting, return_pcs: Sequence[int]) -> WaitStack | None:
        """The stack of a block or mutex event; None if Go's profiler has no such event.

        `return_pcs` are the return addresses (at least one) outwards: for a block event from
        the call of gopark, for a mutex event from a call in semrelease1 or what that calls, or
        from one in unlock2. The other kinds are stacks that wake, which all are events.
        Raises GoTableError if the binary's tables contradict themselves.
        """
        key = kind, tuple(return_pcs)
        try:
            return self._stacks[key]
        except KeyError:
            stack = self._stacks[key] = self._stack(*key)
            return stack

    def _stack(self, kind: Waiting, return_pcs: tuple[int, ...]) -> WaitStack | None:
        """The stack: its head depends on neighbours, the addresses below only on themselves."""
        head = self._head(kind, return_pcs[:_HEAD])
        ends = return_pcs[-1] in self._ends
        below = return_pcs[_HEAD : len(return_pcs) - ends]
        if head is None or len(below) < 2:  # with a single key, itemgetter returns no tuple
            return self._odd_stack(kind, return_pcs)
        try:
            numbers = head + itemgetter(*below)(self._whole)
        except KeyError:
            return self._odd_stack(kind, return_pcs)
        of_each = itemgetter(*numbers)
        counts = of_each(self._logical_counts)
        frames = sum(counts) + ends
        depth = self._rules.max_depth
        if frames <= depth:
            return WaitStack(of_each(self._locations), is_cut=False, key=hash(numbers))
        # Go writes the last physical frame with all its inlined frames, even beyond the depth
        # (runtime/symtab.go, expandFinalInlineFrame).
        so_far = list(accumulate(counts, initial=0))
        kept = min(bisect_left(so_far, depth), len(numbers))
        return self._numbered(numbers[:kept], is_cut=so_far[kept] < frames)

    def _head(self, kind: Waiting, return_pcs: tuple[int, ...]) -> tuple[int, ...] | None:
        """The locations' numbers for the head of a stack; None if _odd_stack() must decide."""
        key = kind, return_pcs
        if key not in self._heads:
            self._heads[key] = self._new_head(kind, self._logical(return_pcs))
        return self._heads[key]

    def _new_head(self, kind: Waiting, frames: list[_Logical]) -> tuple[int, ...] | None:
        if frames[0].name == _UNLOCK or any(frame.name == _CGO_CALLBACK for frame in frames):
            return None
        frames = _without_wrappers(frames, everywhere=self._rules.unwinds_by_tables)
        skipped = _bookkeeping(kind, [frame.name for frame in frames])
        if skipped is None or len(frames) < _HEAD:
            return None
        return self._numbers_of(frames[skipped:])

    def _sort_out(self, return_pcs: Iterable[int]) -> None:
        """Find the addresses that have the same location in each stack."""
        for return_pc in return_pcs:
            at = self._call_pc(return_pc)
            frames = self._frames_at(at) or (None,)
            logical = [_Logical(0, at, frame) for frame in frames]
            names = {call.name for call in logical}
            has_wrapper = any(call.role is FuncRole.WRAPPER for call in logical)
            # When Go unwinds by tables, a wrapper's callee decides whether Go leaves it out.
            is_odd = names & {_CGO_CALLBACK, _END} or (
                has_wrapper and self._rules.unwinds_by_tables
            )
            if names == {_END}:
                self._ends.add(return_pc)
            elif not is_odd:
                shown = _without_wrappers(logical, everywhere=False)
                self._whole[return_pc] = self._number(shown)

    def _odd_stack(self, kind: Waiting, return_pcs: Sequence[int]) -> WaitStack | None:
        """The stack, frame by frame."""
        frames = self._logical(return_pcs)
        depth = self._rules.max_depth
        by_tables = self._rules.unwinds_by_tables or any(f.name == _CGO_CALLBACK for f in frames)
        if frames[0].name == _UNLOCK:
            if frames[-1].name == _THREAD_BODY and self._runtime_locks:
                # The thread returns there to end, without a frame pointer.
                start_pc = self._runtime_locks.thread_start_pc + self._load_bias
                frames = self._logical([*return_pcs, start_pc])
            frames, depth, by_tables = _jumped(frames), self._rules.runtime_lock_depth, True
        frames = _without_wrappers(frames, everywhere=by_tables)
        skipped = _bookkeeping(kind, [frame.name for frame in frames])
        if skipped is None:
            return None
        visible = frames[skipped:]
        # As above.
        while depth < len(visible) and visible[depth].index == visible[depth - 1].index:
            depth += 1
        kept = visible[:depth]
        return self._numbered(self._numbers_of(kept), is_cut=len(kept) < len(visible))

    def _numbered(self, numbers: tuple[int, ...], *, is_cut: bool) -> WaitStack:
        locations = tuple([self._locations[number] for number in numbers])
        return WaitStack(locations, is_cut, key=hash(numbers))

    def _numbers_of(self, frames: Sequence[_Logical]) -> tuple[int, ...]:
        physical = [list(group) for _, group in groupby(frames, key=_index_of)]
        return tuple([self._number(group) for group in physical if group[-1].name != _END])

    def bare_stack(self, return_pcs: Sequence[int]) -> WaitStack:
        """The stack without names, for a program with corrupt tables.

        pprof finds names itself if it has the program's file.
        """
        return self._numbered(
            tuple([self._number_at(pc - 1, ()) for pc in return_pcs]), is_cut=False
        )

    def frames(self, return_pcs: Sequence[int]) -> list[GoFrame]:
        """All logical frames, innermost first, including those that Go's profiles drop.

        Raises GoTableError if the binary's tables contradict themselves.
        """
        return [call.frame for call in self._logical(return_pcs) if call.frame]

    def _logical(self, return_pcs: Sequence[int]) -> list[_Logical]:
        pcs = [self._recorded_pcs.get(return_pcs[0], return_pcs[0]), *return_pcs[1:]]
        return [
            _Logical(index, pc, frame)
            for index, pc in enumerate(map(self._call_pc, pcs))
            for frame in self._frames_at(pc) or [None]
        ]

    def _call_pc(self, return_pc: int) -> int:
        pc = self._call_pcs.get(return_pc)
        if pc is None:
            pc = self._call_pcs[return_pc] = call_pc(self._binary, self._load_bias, return_pc)
        return pc

    def _frames_at(self, pc: int) -> tuple[GoFrame, ...]:
        frames = self._go_frames.get(pc)
        if frames is None:
            frames = self._go_frames[pc] = self._binary.frames(pc - self._load_bias)
        return frames

    def _number(self, group: Sequence[_Logical]) -> int:
        """The number of the location with these logical frames of a physical frame."""
        ids = tuple([id(call.frame) for call in group if call.frame])
        number = self._of_frames.get(ids)
        if number is None:
            frames = tuple([call.frame for call in group if call.frame])
            # If Go drops a part of a physical frame, it uses the address of the rest.
            address = frames[0].pc + self._load_bias if frames else group[0].pc
            number = self._number_at(address, frames)
            if ids:  # else the location has only an address
                self._of_frames[ids] = number
        return number

    def _number_at(self, address: int, frames: tuple[GoFrame, ...]) -> int:
        number = self._numbers.get((address, frames))
        if number is None:
            number = self._numbers[address, frames] = len(self._locations)
            mapping = _mapping_of(address, self._mappings)
            shown = tuple([Frame(f.function, f.file, f.line, f.start_line) for f in frames])
            self._locations.append(Location(address, mapping, shown))
            self._logical_counts.append(max(1, len(shown)))
        return number


def _mapping_of(address: int, mappings: Sequence[Mapping]) -> Mapping | None:
    return next((m for m in mappings if m.start <= address < m.limit), None)


def _bookkeeping(kind: Waiting, names: Sequence[str]) -> int | None:
    """How many logical frames to drop at the leaf; None if Go has no such event."""
    if kind == "block":
        return _bookkeeping_of_park(names)
    release = _bookkeeping_of_release(names)
    return _bookkeeping_of_wake(names) if release is None and kind != "mutex" else release


def _bookkeeping_of_park(names: Sequence[str]) -> int | None:
    """How many logical frames Go drops at the leaf; None if this park is no block event."""
    skip = _count_while(names, 0, _PARKS)
    if skip == len(names):
        return None
    if names[skip] in _OPERATIONS:
        return skip + 1
    if names[skip] != _SEMACQUIRE:
        return skip
    return _behind_shim(names, skip + 1, _SEMACQUIRE_SHIM)


def _bookkeeping_of_release(names: Sequence[str]) -> int | None:
    """How many logical frames Go drops at the leaf; None if this release is no mutex event."""
    if names[0] == _UNLOCK:
        return _UNLOCK_SKIP
    skip = _count_while(names, 0, _WAKES)
    if skip == len(names) or names[skip] != _SEMRELEASE:
        return None
    return _behind_shim(names, skip + 1, _SEMRELEASE_SHIM)


def _bookkeeping_of_wake(names: Sequence[str]) -> int:
    """How many logical frames are the runtime's way to a wake, of one that is no mutex event."""
    start = int(names[0].endswith(_WAKE_ON_THREAD))
    skip = _count_while(names, start, _WAYS_TO_WAKES)
    if skip < len(names) and _SEMRELEASE_SHIM.fullmatch(names[skip]):
        skip += 1
    return min(skip, len(names) - 1)


def _count_while(names: Sequence[str], start: int, among: frozenset[str]) -> int:
    while start < len(names) and names[start] in among:
        start += 1
    return start


def _behind_shim(names: Sequence[str], shim: int, pattern: re.Pattern[str]) -> int | None:
    """The index of the first frame that Go shows; `shim` is that of sync's runtime entry."""
    if shim >= len(names) or not pattern.fullmatch(names[shim]):
        return None
    shown = shim + 1
    for slow_path in _SLOW_PATHS:
        if tuple(names[shown : shown + len(slow_path)]) == slow_path:
            return shown + len(slow_path)
    return shown


def _jumped(frames: Sequence[_Logical]) -> list[_Logical]:
    """The stack of a thread as Go unwinds it (runtime/traceback.go, unwindJumpStack)."""
    kept = [
        call
        for call, caller in zip_longest(frames, frames[1:])
        if call.name != _MORE_STACK or caller is None
    ]
    start = next((i for i, call in enumerate(kept) if call.name == _THREAD_START), len(kept))
    return kept[: start + 1]


def _without_wrappers(frames: Sequence[_Logical], *, everywhere: bool) -> list[_Logical]:
    """Leave out the wrappers that the compiler made, as Go does.

    Without `everywhere`, only those into which the callee was inlined.
    """
    kept = list(frames[:1])
    for callee, call in pairwise(frames):
        is_elided = call.role is FuncRole.WRAPPER and callee.role.elides_wrapper
        if not is_elided or not (everywhere or callee.index == call.index):
            kept.append(call)
    return kept
