"""Addresses on goroutines' stacks as the calls that Go's tracebacks show of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.profile.tracebacks import CallSite, LogicalCall
from symbolizer.frames import Frame, FuncRole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from symbolizer import GoBinary

_FINALIZERS: Final = frozenset({FuncRole.RUN_FINALIZERS, FuncRole.RUN_CLEANUPS})
_PREEMPTIONS: Final = frozenset({FuncRole.ASYNC_PREEMPT, FuncRole.DEBUG_CALL})
# Goroutines that start in the runtime and are the program's (runtime/traceback.go,
# isSystemGoroutine, Go 1.19 to 1.27).
_OF_THE_PROGRAM: Final = frozenset(
    {FuncRole.RUNTIME_MAIN, FuncRole.HANDLE_ASYNC_EVENT, FuncRole.COROSTART}
)
RUNTIME: Final = "runtime."
"""How names of the runtime's own functions begin."""


class _Site(NamedTuple):
    site: CallSite
    injects: bool
    """Whether its function was not called, but put on the one below by a signal."""


class CallSites:
    """Looks up call sites of one target, each address once. Methods raise GoTableError."""

    def __init__(self, binary: GoBinary, bias: int, *, has_arguments: bool) -> None:
        """`bias` is runtime address minus linked address."""
        self._binary, self._bias = binary, bias
        self._has_arguments = has_arguments
        self._rules = binary.layout.tracebacks
        injecting = {FuncRole.SIGPANIC}
        self._injecting = injecting | _PREEMPTIONS if self._rules.preempted_is_trap else injecting
        self._frames: dict[int, tuple[Frame, ...]] = {}  # by linked address
        self._sites: dict[tuple[int, bool], _Site] = {}
        self._alone: dict[int, CallSite | None] = {}
        self._creators: dict[int, CallSite | None] = {}
        self._starts: dict[int, tuple[bool, bool]] = {}

    def look_up(self, pcs: Iterable[int]) -> None:
        """Look up many return addresses at once: ten times as fast as one by one."""
        linked = {self._looked_at(pc - self._bias, is_trap=False) for pc in pcs if pc}
        self._frames.update(self._binary.frames_many(linked - self._frames.keys()))

    def of(self, pcs: tuple[int, ...]) -> tuple[CallSite, ...]:
        """The call sites of a stack, innermost first."""
        sites = []
        is_trap = False
        for pc in pcs:
            site, is_trap = self._sites.get((pc, is_trap)) or self._at(pc, is_trap=is_trap)
            sites.append(site)
        return tuple(sites)

    def at(self, pc: int) -> CallSite | None:
        """One call site; None where there is no function."""
        if pc not in self._alone:
            is_code = self._binary.function_at(pc - self._bias) is not None
            self._alone[pc] = self._at(pc, is_trap=False).site if is_code else None
        return self._alone[pc]

    def creator(self, created_pc: int) -> CallSite | None:
        """The place of the `go` statement with this return address; None without one.

        Go names the physical function, and shows the innermost file and line
        (runtime/traceback.go, printcreatedby1).
        """
        if created_pc not in self._creators:
            self._creators[created_pc] = self._creator(created_pc) if created_pc else None
        return self._creators[created_pc]

    def is_system(self, start_pc: int) -> bool:
        """Whether a goroutine that starts at this function is the runtime's own.

        Those of finalizers and cleanups are, unless they run one: see runs_finalizers().
        """
        return self._start(start_pc)[0]

    def runs_finalizers(self, start_pc: int) -> bool:
        """Whether a goroutine that starts at this function runs finalizers or cleanups."""
        return self._start(start_pc)[1]

    def _start(self, start_pc: int) -> tuple[bool, bool]:
        start = self._starts.get(start_pc)
        if start is None:
            function = self._binary.function_at(start_pc - self._bias)
            role = self._binary.layout.role(function.func_id) if function else FuncRole.NORMAL
            is_runtime = function is not None and function.name.startswith(RUNTIME)
            start = (is_runtime and role not in _OF_THE_PROGRAM, role in _FINALIZERS)
            self._starts[start_pc] = start
        return start

    def _creator(self, created_pc: int) -> CallSite | None:
        linked = created_pc - self._bias
        function = self._binary.function_at(linked)
        if function is None:
            return None
        looked_at = self._looked_at(linked, is_trap=False)
        frames = self._at_linked(looked_at)
        inner, outer = frames[0], frames[-1]
        call = LogicalCall(
            outer.function,
            inner.file,
            inner.line,
            looked_at + self._bias,
            looked_at - function.entry,
            is_wrapper=outer.role is FuncRole.WRAPPER,
        )
        return CallSite((call,), linked - function.entry)

    def _at(self, pc: int, *, is_trap: bool) -> _Site:
        linked = pc - self._bias
        function = self._binary.function_at(linked)
        assert function is not None  # a walk has only addresses of functions
        looked_at = self._looked_at(linked, is_trap=is_trap)
        frames = self._at_linked(looked_at)
        calls = tuple(self._call(frame, function.entry) for frame in frames)
        at = frames[-1].pc if self._rules.liveness_of_outermost else looked_at
        arguments = self._binary.arguments(at) if self._has_arguments else ()
        site = CallSite(calls, linked - function.entry, arguments)
        known = _Site(site, frames[-1].role in self._injecting)
        self._sites[pc, is_trap] = known
        return known

    def _call(self, frame: Frame, entry: int) -> LogicalCall:
        return LogicalCall(
            frame.function,
            frame.file,
            frame.line,
            frame.pc + self._bias,
            frame.pc - entry,
            frame.role is FuncRole.WRAPPER,
            frame.role.elides_wrapper,
            frame.role in _FINALIZERS,
            frame.start_line,
        )

    def _at_linked(self, linked: int) -> tuple[Frame, ...]:
        frames = self._frames.get(linked)
        if frames is None:
            frames = self._frames[linked] = self._binary.frames(linked)
        return frames

    def _looked_at(self, linked: int, *, is_trap: bool) -> int:
        """The address whose line Go shows: in the call before, or where a signal came."""
        function = self._binary.function_at(linked)
        is_exact = is_trap or (function is not None and function.entry == linked)
        return linked if is_exact else linked - 1
