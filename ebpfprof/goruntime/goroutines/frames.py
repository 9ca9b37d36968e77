"""The logical frames of a goroutine's stack, as Go's own tracebacks have them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.profile.model import Frame
from symbolizer.frames import Frame as GoFrame
from symbolizer.frames import FuncRole

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from symbolizer import GoBinary

_RUNTIME: Final = "runtime."
_RUNTIMES: Final = (_RUNTIME, "internal/runtime/", "runtime/internal/")
_RUNNING: Final = "running"
# Goroutines that start in the runtime and are the program's (runtime/traceback.go,
# isSystemGoroutine, Go 1.19 to 1.27).
_OF_THE_PROGRAM: Final = frozenset(
    {FuncRole.RUNTIME_MAIN, FuncRole.HANDLE_ASYNC_EVENT, FuncRole.COROSTART}
)
_FINALIZERS: Final = frozenset({FuncRole.RUN_FINALIZERS, FuncRole.RUN_CLEANUPS})


class PhysicalFrame(NamedTuple):
    """A logical frame: in which physical frame of its stack it is, and the address of the call.

    `pc` is the address at which Go sees this frame: the call's, or what stands in the code for a
    call that was inlined (the parentPc of runtime/symtabinl.go). All are runtime addresses.
    """

    number: int
    address: int
    frame: Frame
    pc: int


class StackFrames:
    """Looks up the frames of one target, each address once.

    Its methods raise GoTableError if the binary's tables contradict themselves.
    """

    def __init__(self, go: GoTarget) -> None:
        self._binary, self._bias = go.binary, go.load_bias
        self._known: dict[int, tuple[GoFrame, ...]] = {}
        self._call_pcs: dict[int, int] = {}
        self._sites: dict[tuple[int, bool], tuple[int, bool]] = {}
        self._stacks: dict[tuple[int, ...], tuple[Frame, ...]] = {}

    def look_up(self, pcs: Iterable[int]) -> None:
        """Look up many addresses at once: ten times as fast as one by one."""
        new = {self._call_pc(pc) for pc in pcs} - self._known.keys()
        frames = self._binary.frames_many(pc - self._bias for pc in new)
        self._known.update((pc, frames[pc - self._bias]) for pc in new)

    def of(self, pcs: tuple[int, ...]) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first, without runtime.goexit and without wrappers."""
        frames = self._stacks.get(pcs)
        if frames is None:
            frames = self._stacks[pcs] = tuple(physical.frame for physical in self.physical(pcs))
        return frames

    def physical(self, pcs: tuple[int, ...]) -> list[PhysicalFrame]:
        """The same frames, each with the number of its physical frame and the call's address."""
        addresses = self._looked_at(pcs)
        logical = [(number, addresses[number], frame) for number, frame in self.logical(pcs)]
        kept = logical[:1]
        for (_, _, callee), caller in pairwise(logical):
            if caller[2].role is not FuncRole.WRAPPER or not callee.role.elides_wrapper:
                kept.append(caller)
        return [
            PhysicalFrame(number, address, _shown(frame), frame.pc + self._bias)
            for number, address, frame in kept
            if frame.role is not FuncRole.GOEXIT
        ]

    def logical(self, pcs: tuple[int, ...]) -> list[tuple[int, GoFrame]]:
        """All calls of a stack, wrappers too, each with the number of its physical frame.

        Addresses in them are as linked.
        """
        addresses = self._looked_at(pcs)
        return [(n, frame) for n, address in enumerate(addresses) for frame in self._known[address]]

    def creator(self, created_pc: int) -> Frame | None:
        """The function with the `go` statement of this return address, as tracebacks show it.

        None if there is none, or it is the runtime's (runtime/traceback.go, printcreatedby).
        """
        frames = self._at(created_pc) if created_pc else ()
        if not frames or frames[-1].function.startswith(_RUNTIME):
            return None
        return _shown(frames[-1])

    def wrapped(self, start_pc: int) -> int:
        """The function that the wrapper of a `go` statement calls; any other one is itself."""
        return self._binary.wrapped(start_pc - self._bias) + self._bias

    def is_system(self, start_pc: int, pcs: tuple[int, ...], state: str) -> bool:
        """Whether a goroutine that starts at this function is the runtime's own.

        One of finalizers or cleanups is the program's while it runs one: while a function of the
        program is on its stack. While it is "running" we know no stack; it hardly does anything
        else then. Go looks at flags of its own (runtime/traceback.go, isSystemGoroutine).
        """
        frames = self._at(start_pc)
        if not frames:
            return False
        start = frames[-1]
        if not start.function.startswith(_RUNTIME) or start.role in _OF_THE_PROGRAM:
            return False
        if start.role not in _FINALIZERS:
            return True
        if not pcs:
            return state != _RUNNING
        return all(frame.function.startswith(_RUNTIMES) for pc in pcs for frame in self._at(pc))

    def _at(self, pc: int) -> tuple[GoFrame, ...]:
        return self._known[self._looked_at((pc,))[0]]

    def _looked_at(self, pcs: tuple[int, ...]) -> list[int]:
        """The address of each physical frame, known from now on: of the call, or of the fault.

        sigpanic has no caller: the pc behind it is of the instruction that faulted
        (runtime/traceback.go, unwinder.symPC).
        """
        addresses = []
        is_fault = False
        for pc in pcs:
            site = self._sites.get((pc, is_fault))
            if site is None:
                site = self._sites[pc, is_fault] = self._site(pc, is_fault=is_fault)
            address, is_fault = site
            addresses.append(address)
        return addresses

    def _site(self, pc: int, *, is_fault: bool) -> tuple[int, bool]:
        address = pc if is_fault else self._call_pc(pc)
        if address not in self._known:
            self._known[address] = self._binary.frames_many([address - self._bias])[
                address - self._bias
            ]
        frames = self._known[address]
        return address, bool(frames) and frames[-1].role is FuncRole.SIGPANIC

    def _call_pc(self, pc: int) -> int:
        address = self._call_pcs.get(pc)
        if address is None:
            address = self._call_pcs[pc] = call_pc(self._binary, self._bias, pc)
        return address


def call_pc(binary: GoBinary, bias: int, return_pc: int) -> int:
    """The address at which Go looks up a frame: a call's, or the entry of a function.

    Both are runtime addresses (runtime/traceback.go, symPC). Raises GoTableError.
    """
    function = binary.function_at(return_pc - bias)
    is_entry = function is not None and function.entry == return_pc - bias
    return return_pc if is_entry else return_pc - 1


def _shown(frame: GoFrame) -> Frame:
    return Frame(frame.function, frame.file, frame.line, frame.start_line)
