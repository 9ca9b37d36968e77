"""Return addresses of a blocked goroutine → the stack that Go's own profile would show.

Go drops its own bookkeeping from the top of a stack by skip counts (runtime/mprof.go,
blockevent and the callers of it). The frames so dropped are always logical frames of the same
names, so here they are dropped by name: that also holds where the compiler inlined them.
"""

import re
from collections.abc import Iterator, Sequence

from ebpfprof.profile import Frame, Location, Mapping
from symbolizer import Frame as GoFrame
from symbolizer import FuncRole, GoBinary

_PARKS = frozenset({"runtime.gopark", "runtime.goparkunlock"})
# Dropped entirely; runtime.selectgo is not: it passes one skip less.
_OPERATIONS = frozenset(
    {
        "runtime.chansend",
        "runtime.chanrecv",
        "runtime.notifyListWait",
        "sync.runtime_notifyListWait",
    }
)
_SEMACQUIRE = "runtime.semacquire1"
# What sync and internal/poll call. The runtime's own semaphores come without: no block events.
_SEMACQUIRE_SHIM = re.compile(r"[\w/]+\.runtime_Semacquire\w*")
# skipframes of sync.(*Mutex).lockSlow: 1 up to Go 1.23; 2 from 1.24 on (internal/sync).
_MUTEX_SLOW_PATHS = (
    ("internal/sync.(*Mutex).lockSlow", "internal/sync.(*Mutex).Lock"),
    ("sync.(*Mutex).lockSlow",),
)
# A wrapper that called one of these is shown (runtime/traceback.go, elideWrapperCalling).
_WRAPPERS_SHOWN_FOR = frozenset({FuncRole.GOPANIC, FuncRole.SIGPANIC, FuncRole.PANICWRAP})


def max_depth(go_minor: int) -> int:
    """Logical frames that Go keeps of a blocked stack (runtime/mprof.go, maxStack).

    From 1.23 on it is debug.profstackdepth, 128 unless GODEBUG says otherwise.
    """
    return 32 if go_minor <= 22 else 128


class StackTranslator:
    """Turns the stacks of one target into locations; each address is looked up once."""

    def __init__(self, binary: GoBinary, load_bias: int, mappings: Sequence[Mapping]) -> None:
        """`load_bias` is what to take from a runtime address to get the linked one."""
        self._binary = binary
        self._load_bias = load_bias
        self._mappings = mappings
        self._max_depth = max_depth(binary.version.minor)
        self._go_frames: dict[int, tuple[GoFrame, ...]] = {}
        self._locations: dict[tuple[int, int], Location] = {}

    def block_stack(self, return_pcs: Sequence[int]) -> tuple[Location, ...] | None:
        """The stack of a block event, leaf first; None if Go's profiler has no such event.

        `return_pcs` are the return addresses from the call of gopark outwards. Raises
        GoTableError if the binary's tables contradict themselves.
        """
        frames = [
            (pc - 1, frame) for pc in return_pcs for frame in self._frames_at(pc - 1) or [None]
        ]
        skipped = _bookkeeping([frame.function if frame else "" for _, frame in frames])
        if skipped is None:
            return None
        kept = list(_visible(frames[skipped:]))[: self._max_depth]
        locations = []
        first = 0
        for index, (pc, frame) in enumerate(kept):
            last = index + 1 == len(kept)
            if last or kept[index + 1][0] != pc:
                if frame is None or frame.role is not FuncRole.GOEXIT:
                    locations.append(self._location(pc, [f for _, f in kept[first : index + 1]]))
                first = index + 1
        return tuple(locations)

    def _frames_at(self, pc: int) -> tuple[GoFrame, ...]:
        frames = self._go_frames.get(pc)
        if frames is None:
            frames = self._go_frames[pc] = self._binary.frames(pc - self._load_bias)
        return frames

    def _location(self, pc: int, frames: list[GoFrame | None]) -> Location:
        known = tuple(
            Frame(frame.function, frame.file, frame.line, frame.start_line)
            for frame in frames
            if frame
        )
        location = self._locations.get((pc, len(known)))
        if location is None or location.frames != known:
            mapping = next((m for m in self._mappings if m.start <= pc < m.limit), None)
            location = self._locations[pc, len(known)] = Location(pc, mapping, known)
        return location


def _bookkeeping(names: Sequence[str]) -> int | None:
    """How many logical frames Go drops at the leaf; None if this park is no block event."""
    skip = 0
    while skip < len(names) and names[skip] in _PARKS:
        skip += 1
    if skip == len(names):
        return None
    if names[skip] in _OPERATIONS:
        return skip + 1
    if names[skip] != _SEMACQUIRE:
        return skip
    skip += 1
    if skip == len(names) or not _SEMACQUIRE_SHIM.fullmatch(names[skip]):
        return None
    skip += 1
    for slow_path in _MUTEX_SLOW_PATHS:
        if tuple(names[skip : skip + len(slow_path)]) == slow_path:
            return skip + len(slow_path)
    return skip


def _visible(
    frames: Sequence[tuple[int, GoFrame | None]],
) -> Iterator[tuple[int, GoFrame | None]]:
    """Leave out the wrappers that the compiler made, as every Go traceback does."""
    callee = None
    for pc, frame in frames:
        role = frame.role if frame else None
        if role is not FuncRole.WRAPPER or callee in _WRAPPERS_SHOWN_FOR:
            yield pc, frame
        callee = role
