"""The logical frames of a goroutine's stack, as Go's own tracebacks have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.model import Frame
from symbolizer.frames import Frame as GoFrame
from symbolizer.frames import FuncRole

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_RUNTIME: Final = "runtime."
# Goroutines that start in the runtime and are the program's (runtime/traceback.go,
# isSystemGoroutine, Go 1.19 to 1.27).
_OF_THE_PROGRAM: Final = frozenset(
    {FuncRole.RUNTIME_MAIN, FuncRole.HANDLE_ASYNC_EVENT, FuncRole.COROSTART}
)


class StackFrames:
    """Looks up the frames of one target, each address once.

    Its methods raise GoTableError if the binary's tables contradict themselves.
    """

    def __init__(self, go: GoTarget) -> None:
        self._binary, self._bias = go.binary, go.load_bias
        self._known: dict[int, tuple[GoFrame, ...]] = {}
        self._call_pcs: dict[int, int] = {}
        self._stacks: dict[tuple[int, ...], tuple[Frame, ...]] = {}

    def look_up(self, pcs: Iterable[int]) -> None:
        """Look up many addresses at once: ten times as fast as one by one."""
        new = {self._call_pc(pc) for pc in pcs} - self._known.keys()
        found = self._binary.frames_many(pc - self._bias for pc in new)
        self._known.update((pc, found[pc - self._bias]) for pc in new)

    def of(self, pcs: tuple[int, ...]) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first, without runtime.goexit and without wrappers."""
        found = self._stacks.get(pcs)
        if found is None:
            logical = [frame for pc in pcs for frame in self._at(pc)]
            found = self._stacks[pcs] = tuple(map(_shown, _without_wrappers(logical)))
        return found

    def physical(self, pcs: tuple[int, ...]) -> list[tuple[int, Frame]]:
        """The same frames, each with the runtime address of its call.

        Frames that were inlined into one function follow each other with the same address.
        """
        address_of = {id(frame): self._call_pc(pc) for pc in pcs for frame in self._at(pc)}
        logical = [frame for pc in pcs for frame in self._at(pc)]
        return [(address_of[id(each)], _shown(each)) for each in _without_wrappers(logical)]

    def creator(self, created_pc: int) -> Frame | None:
        """The function with the `go` statement of this return address, as tracebacks show it.

        None if there is none, or it is the runtime's (runtime/traceback.go, printcreatedby).
        """
        frames = self._at(created_pc) if created_pc else ()
        if not frames or frames[-1].function.startswith(_RUNTIME):
            return None
        return _shown(frames[-1])

    def is_system(self, start_pc: int) -> bool:
        """Whether a goroutine that starts at this function is the runtime's own."""
        frames = self._at(start_pc)
        if not frames:
            return False
        start = frames[-1]
        return start.function.startswith(_RUNTIME) and start.role not in _OF_THE_PROGRAM

    def _at(self, pc: int) -> tuple[GoFrame, ...]:
        call_pc = self._call_pc(pc)
        if call_pc not in self._known:
            self.look_up([pc])
        return self._known[call_pc]

    def _call_pc(self, pc: int) -> int:
        """The address of the call, or of a function's entry (runtime/traceback.go, symPC)."""
        call_pc = self._call_pcs.get(pc)
        if call_pc is None:
            function = self._binary.function_at(pc - self._bias)
            is_entry = function is not None and function.entry == pc - self._bias
            call_pc = self._call_pcs[pc] = pc if is_entry else pc - 1
        return call_pc


def _without_wrappers(frames: Sequence[GoFrame]) -> list[GoFrame]:
    kept = list(frames[:1])
    for callee, each in pairwise(frames):
        if each.role is not FuncRole.WRAPPER or not callee.role.elides_wrapper:
            kept.append(each)
    return [each for each in kept if each.role is not FuncRole.GOEXIT]


def _shown(frame: GoFrame) -> Frame:
    return Frame(frame.function, frame.file, frame.line, frame.start_line)
