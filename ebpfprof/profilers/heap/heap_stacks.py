"""The stacks of Go's memory profile, as Go shows them.

They are logical stacks: a return address for each call, also for each inlined one, without wrappers
(runtime/traceback.go, tracebackPCs). Go shows them without the runtime's own innermost calls
(runtime/pprof/protomem.go, writeHeapProto, Go 1.19 to 1.27).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.profile.model import Frame, Location, Mapping
from symbolizer.frames import Frame as GoFrame
from symbolizer.frames import FuncRole

if TYPE_CHECKING:
    from symbolizer import GoBinary

_ALLOCATORS: Final = "runtime.mallocgc"


class LoggedCall(NamedTuple):
    """A logical call: the number of its physical frame, the address of the call, its function.

    `frame` is None if the tables have no function there.
    """

    number: int
    address: int
    frame: GoFrame | None


class HeapStacks:
    """Looks up the stacks of one program, each once. Addresses are runtime addresses.

    The runtime's own stacks lack wrappers, but those that begin `at_gates` have all frames.
    """

    def __init__(
        self,
        binary: GoBinary,
        load_bias: int,
        mappings: tuple[Mapping, ...],
        *,
        at_gates: bool = False,
    ) -> None:
        self._binary, self._bias, self._mappings = binary, load_bias, mappings
        self._at_gates = at_gates
        self._hidden = binary.layout.tracebacks.hidden_prefixes
        self._skips_callers = binary.layout.tracebacks.skips_callers_of_mallocgc
        self._frames: dict[int, tuple[GoFrame, ...]] = {}
        self._known: dict[tuple[int, ...], tuple[Location, ...]] = {}
        self._first: dict[tuple[Location, ...], tuple[int, ...]] = {}
        self._locations: dict[tuple[int, tuple[Frame, ...]], Location] = {}

    def look_up(self, stacks: Iterable[tuple[int, ...]]) -> None:
        """Look up many stacks at once, which is faster. Raises GoTableError."""
        pcs = {pc - self._bias for stack in stacks for pc in stack if stack not in self._known}
        new = pcs | {pc - 1 for pc in pcs}
        frames = self._binary.frames_many(new - self._frames.keys())
        self._frames.update(frames)

    def of(self, stack: tuple[int, ...]) -> tuple[Location, ...]:
        """The stack as Go's profile has it. Raises GoTableError."""
        known = self._known.get(stack)
        if known is None:
            calls = self.shown(stack)
            physical = groupby(calls, key=lambda call: call.number)
            known = tuple(self._location(tuple(group)) for _, group in physical)
            self._known[stack] = known
        return known

    def shown_alike(self, stack: tuple[int, ...]) -> tuple[int, ...]:
        """A stack that begins as in Go's profile, the same for all that look the same.

        An object passes by other instructions of mallocgc while the garbage collector marks, from
        the same line of the program. Raises GoTableError.
        """
        callers = stack[self._first_caller(stack) :] or stack
        return self._first.setdefault(self.of(callers), callers)

    def _first_caller(self, stack: tuple[int, ...]) -> int:
        """How many of the innermost frames mProf_Malloc leaves out.

        Those of runtime.mallocgc and what it is made of, and that which called it, such as
        reflect.unsafe_New, if this version of Go does so.
        """
        for number, pc in enumerate(stack):
            frames = self._at(pc - 1)
            if not frames or not frames[-1].function.startswith(_ALLOCATORS):
                is_alone = number > 0 and len(frames) == 1
                return number + (is_alone and self._skips_callers)
        return len(stack)

    def shown(self, stack: tuple[int, ...]) -> Sequence[LoggedCall]:
        """The calls that Go shows, innermost first: without the runtime's innermost ones.

        Whether a call is one of the runtime, Go sees at the address behind it (FuncForPC): there,
        another inlined function can begin. All calls if there are no others. Raises GoTableError.
        """
        calls = list(self._without_wrappers(self._calls(stack)))
        for number, call in enumerate(calls):
            behind = self._at(call.address + 1)
            if not behind or not behind[0].function.startswith(self._hidden):
                return calls[number:]
        return calls

    def _calls(self, stack: tuple[int, ...]) -> Iterator[LoggedCall]:
        """All calls. The stack has an address for each; the tables give all calls of a frame."""
        at = 0
        while at < len(stack):
            number, address = at, stack[at] - 1
            frames = self._at(address)
            at += 1
            if not frames:
                yield LoggedCall(number, address, None)
            for inner, frame in enumerate(frames):
                caller = frame.pc + self._bias
                if inner and at < len(stack) and stack[at] - 1 == caller:
                    at += 1
                yield LoggedCall(number, caller, frame)

    def _without_wrappers(self, calls: Iterable[LoggedCall]) -> Iterator[LoggedCall]:
        elides = self._at_gates  # what mProf_Malloc leaves out is no wrapper
        for call in calls:
            role = call.frame.role if call.frame else FuncRole.NORMAL
            if role is not FuncRole.GOEXIT and not (role is FuncRole.WRAPPER and elides):
                yield call
            elides = role.elides_wrapper

    def _at(self, address: int) -> tuple[GoFrame, ...]:
        linked = address - self._bias
        if linked not in self._frames:
            self._frames.update(self._binary.frames_many([linked]))
        return self._frames[linked]

    def _location(self, calls: tuple[LoggedCall, ...]) -> Location:
        """One object for each, so that exports are fast."""
        frames = tuple(
            Frame(call.frame.function, call.frame.file, call.frame.line, call.frame.start_line)
            for call in calls
            if call.frame
        )
        address = calls[0].address
        key = address, frames
        if key not in self._locations:
            mapping = next((m for m in self._mappings if m.start <= address < m.limit), None)
            self._locations[key] = Location(address, mapping, frames)
        return self._locations[key]
