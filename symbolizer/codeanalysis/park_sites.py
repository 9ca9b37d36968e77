"""Probe addresses for goroutines that block and wake, found in the machine code.

Go's block profiler hooks a handful of runtime functions. Each of them blocks by calling
runtime.gopark, and runtime.ready makes every goroutine that they block runnable
(Go 1.19 to 1.27: runtime/chan.go, select.go, sema.go, proc.go). All sites are instructions
that uprobes emulate, and never a function's first one.
"""

from dataclasses import dataclass, replace
from typing import Final

from symbolizer.codeanalysis.cheap_sites import before_call
from symbolizer.codeanalysis.entry_sites import behind_check
from symbolizer.codeanalysis.runtime_functions import RuntimeCode, unknown_code
from symbolizer.codeanalysis.semaphores import (
    ACQUIRE,
    THROW,
    UNLOCKS,
    SemaphoreSites,
    semaphore_sites,
)
from symbolizer.codeanalysis.semaphores import WAKE as WAKE_FROM_SEMAPHORE
from symbolizer.errors import GoTableError
from symbolizer.go.binary import GoBinary
from symbolizer.x86.call_sites import CALL_BYTES
from symbolizer.x86.disasm import decode

# Logical functions (so also where they are inlined) whose parks are block events in Go.
# notifyListWait has the name that it is linked with; operations of reflect and internal/poll call
# these, too.
HOOKED: Final = frozenset(
    {
        "runtime.chansend",
        "runtime.chanrecv",
        "runtime.selectgo",
        "runtime.semacquire1",
        "runtime.notifyListWait",
        "sync.runtime_notifyListWait",
    }
)
_PARK = "runtime.gopark"
# Most call gopark through this one, which is always inlined except in profile-guided builds.
_PARK_UNLOCK = "runtime.goparkunlock"
# gopark calls it last, even where a profile-guided build inlines gopark.
_LEAVE = "runtime.mcall"
_WAKE = "runtime.ready"
# The closures that call it for the operations above, by the function that goready is inlined in.
_WAKERS = (
    "runtime.goready.func1",
    "runtime.send.goready.func1",
    "runtime.recv.goready.func1",
    "runtime.closechan.goready.func1",
    "runtime.readyWithTime.goready.func1",
    "_.goready.func1",
)
_RECORD = "runtime.blockevent"
# Go names it as where it is called from. Programs of which nothing calls it are linked without.
_SET_LABELS = "runtime/pprof.runtime_setProfLabel"
_DEAD_END_BYTES = 32
_MAX_FUNCTION_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ParkSite:
    """One place where goroutines block.

    Each blocking operation passes `start_pc` exactly once, shortly before it parks for the first
    time, on a jump or a nop if there is one; there R14 has the address of its runtime.g. At
    `call_pc` it calls gopark or goparkunlock, or mcall where both were inlined. `recorded_pc` is
    the return address that Go's own profile has in place of that call's: that of the call of
    blockevent. All are addresses as linked.
    """

    operation: str
    start_pc: int
    call_pc: int
    recorded_pc: int

    @property
    def return_pc(self) -> int:
        """Return address of the call."""
        return self.call_pc + CALL_BYTES

    @property
    def is_semaphore(self) -> bool:
        """Whether it is the park of runtime.semacquire1."""
        return self.operation == ACQUIRE


@dataclass(frozen=True, slots=True)
class ProbeSites:
    """Where the probes for goroutines that block and wake go. Addresses as linked.

    At `wake_pc`, in runtime.ready behind its stack check, RAX has the woken runtime.g. A
    program that links none of the blocking operations has no `parks`, and one that links no
    semaphores no `semaphores`. `anchor_pc` is in runtime.throw: only a dying program passes it.
    `sets_labels`: the program links the function that gives goroutines their first labels
    (runtime/proflabel.go, Go 1.19 to 1.27); without it no goroutine ever has any.
    """

    parks: tuple[ParkSite, ...]
    wake_pc: int
    anchor_pc: int
    semaphores: SemaphoreSites | None
    sets_labels: bool

    def with_waits_of(self, other: "ProbeSites", shift: int) -> "ProbeSites":
        """The same with the parks and lock callers of another module, moved by `shift` bytes."""
        parks = tuple(
            replace(
                park,
                start_pc=park.start_pc + shift,
                call_pc=park.call_pc + shift,
                recorded_pc=park.recorded_pc + shift,
            )
            for park in other.parks
        )
        semaphores = self.semaphores
        if other.semaphores:
            callers = tuple(pc + shift for pc in other.semaphores.lock_callers)
            known = semaphores.lock_callers if semaphores else ()
            base = semaphores or other.semaphores
            semaphores = replace(base, lock_callers=(*known, *callers))
        sets_labels = self.sets_labels or other.sets_labels
        return replace(
            self, parks=(*self.parks, *parks), semaphores=semaphores, sets_labels=sets_labels
        )


def probe_sites(binary: GoBinary) -> ProbeSites:
    """Find the places to probe, the parks in ascending order.

    Raises GoTableError if no known Go version compiles such code.
    """
    code = RuntimeCode(
        binary,
        called=(
            _PARK,
            _PARK_UNLOCK,
            _LEAVE,
            _WAKE,
            _RECORD,
            ACQUIRE,
            *UNLOCKS,
            WAKE_FROM_SEMAPHORE,
        ),
        others=(*HOOKED, *_WAKERS, THROW, _SET_LABELS),
    )
    for name in (_PARK, _LEAVE, _WAKE, THROW):
        if not code.functions(name):
            raise GoTableError(f"the function table lacks {name}: the program may be obfuscated")
    calls = _parking_calls(code)
    in_semaphores = [call_pc for call_pc, operation in calls.items() if operation == ACQUIRE]
    if len(in_semaphores) > 1:
        raise unknown_code(f"{ACQUIRE} parks in several places")
    semaphores = semaphore_sites(code, in_semaphores[0]) if in_semaphores else None
    parks = tuple(
        ParkSite(
            operation=operation,
            start_pc=(
                semaphores.start_pc
                if semaphores and operation == ACQUIRE
                else _start_pc(code, call_pc)
            ),
            call_pc=call_pc,
            recorded_pc=_recorded_pc(code, operation, call_pc),
        )
        for call_pc, operation in sorted(calls.items())
    )
    return ProbeSites(
        parks,
        _wake(code),
        code.functions(THROW)[0].entry,
        semaphores,
        sets_labels=bool(code.functions(_SET_LABELS)),
    )


def _hooked_operation(code: RuntimeCode, call_pc: int, called: str) -> str | None:
    """Return the hooked function that the call at `call_pc` parks or records for, if any."""
    names = code.names_at(call_pc)
    if called == _LEAVE and _PARK not in names:
        return None
    return next((name for name in names if name in HOOKED), None)


def _parking_calls(code: RuntimeCode) -> dict[int, str]:
    """Return the addresses of the calls that park, each with its hooked operation."""
    throws = {function.entry for function in code.functions(THROW)}
    calls = {}
    code.look_up(pc for name in (_PARK, _PARK_UNLOCK, _LEAVE, _RECORD) for pc in code.calls(name))
    for name in (_PARK, _PARK_UNLOCK, _LEAVE):
        for call_pc in code.calls(name):
            operation = _hooked_operation(code, call_pc, name)
            if operation and not _is_dead_end(code, call_pc, throws):
                calls[call_pc] = operation
    for function in code.functions(*HOOKED):
        if not any(function.entry <= call_pc < function.end for call_pc in calls):
            raise unknown_code(f"{function.name} never calls {_PARK}")
    return calls


def _wake(code: RuntimeCode) -> int:
    calls = code.calls(_WAKE)
    for waker in code.functions(*_WAKERS):
        if not any(waker.entry <= pc < waker.end for pc in calls):
            raise unknown_code(f"{_WAKE} was inlined into {waker.name}")
    for function in code.functions(_WAKE):
        pc = behind_check(code.decoded(function))
        if pc is not None:
            return pc
    raise unknown_code(f"{_WAKE} has no place for a probe")


def _start_pc(code: RuntimeCode, call_pc: int) -> int:
    function = code.binary.function_at(call_pc)
    if function is None or function.end - function.entry > _MAX_FUNCTION_BYTES:
        return call_pc
    text = code.binary.elf.read(function.entry, function.end - function.entry)
    return before_call(text, function.entry, call_pc)


def _is_dead_end(code: RuntimeCode, call_pc: int, throws: set[int]) -> bool:
    """Whether only a throw follows: a park on a nil channel, which blocks forever."""
    after = call_pc + CALL_BYTES
    for instruction in decode(code.binary.elf.read(after, _DEAD_END_BYTES), after):
        if instruction.is_call:
            return instruction.target in throws
        if instruction.is_jump or not instruction.falls_through:
            return False
    return False


def _recorded_pc(code: RuntimeCode, operation: str, park_pc: int) -> int:
    """The return address of the call that records; that of the park if there is no single one."""
    parks_in = code.binary.function_at(park_pc)
    calls = [
        call_pc
        for call_pc in code.calls(_RECORD)
        if code.binary.function_at(call_pc) == parks_in
        and _hooked_operation(code, call_pc, _RECORD) == operation
    ]
    return (calls[0] if len(calls) == 1 else park_pc) + CALL_BYTES
