"""Where to stand to see goroutines block and wake: probe addresses found in the machine code.

Go's block profiler hooks a handful of runtime functions. Each of them blocks by calling
runtime.gopark, and every goroutine that they block is made runnable by runtime.ready
(Go 1.19 to 1.27: runtime/chan.go, select.go, sema.go, proc.go). All sites are instructions
that uprobes emulate, and never a function's first one.
"""

from dataclasses import dataclass
from typing import Final

from symbolizer.callsites import CALL_BYTES
from symbolizer.disasm import Instruction, decode, reachable, successors
from symbolizer.errors import GoTableError
from symbolizer.gobinary import Function, GoBinary

# Logical functions (so also where they are inlined) in which a park is a block event to Go.
# notifyListWait carries the name it is linked under; reflect's and internal/poll's
# operations go through these, too.
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
# Most call gopark by way of this one, which is always inlined but in profile-guided builds.
_PARK_UNLOCK = "runtime.goparkunlock"
# What gopark calls in the end, also where a profile-guided build inlines gopark.
_LEAVE = "runtime.mcall"
_WAKE = "runtime.ready"
# The closures that call it for the operations above, by the function goready is inlined into.
_WAKERS = (
    "runtime.goready.func1",
    "runtime.send.goready.func1",
    "runtime.recv.goready.func1",
    "runtime.closechan.goready.func1",
    "runtime.readyWithTime.goready.func1",
    "_.goready.func1",
)
_RECORD = "runtime.blockevent"
_NEVER_RETURNS = "runtime.throw"
_LOOPS = "runtime.semacquire1"
_DEAD_END_BYTES = 32
_UNKNOWN_CODE = (
    "{}: this program was compiled in a way that is not known here. Please report its Go version "
    "and build flags (`go version -m FILE`)."
)


@dataclass(frozen=True, slots=True)
class ParkSite:
    """One place where goroutines block.

    `start_pc` is passed exactly once by each blocking operation, shortly before it parks for
    the first time; there R14 holds the address of its runtime.g. `return_pc` is the return
    address, in the function that blocks, of the call in which it then parks: of gopark or
    goparkunlock, or of mcall (the goroutine's saved pc) where both were inlined.
    `recorded_pc` is the return address that stands in its place in Go's own profile: that of
    the call of blockevent. All are addresses as linked.
    """

    operation: str
    start_pc: int
    return_pc: int
    recorded_pc: int


@dataclass(frozen=True, slots=True)
class ProbeSites:
    """Where the block profile's probes go. Addresses as linked.

    At `wake_pc`, in runtime.ready behind its stack check, RAX holds the woken runtime.g. A
    program that links none of the blocking operations has no `parks`.
    """

    parks: tuple[ParkSite, ...]
    wake_pc: int


def probe_sites(binary: GoBinary) -> ProbeSites:
    """Find the places to probe, the parks in ascending order.

    Raises GoTableError if the code is not as any known Go version compiles it.
    """
    code = _RuntimeCode(binary)
    return ProbeSites(tuple(sorted(_parks(code), key=lambda site: site.start_pc)), _wake(code))


class _RuntimeCode:
    """The functions of the runtime that matter here and the calls of some: looked up once."""

    def __init__(self, binary: GoBinary) -> None:
        self.binary = binary
        called = (_PARK, _PARK_UNLOCK, _LEAVE, _WAKE, _RECORD)
        names = {*HOOKED, *_WAKERS, *called, _NEVER_RETURNS}
        self._functions = binary.functions_by_name(names)
        for name in (_PARK, _LEAVE, _WAKE):
            if not self._functions[name]:
                raise GoTableError(f"{name} is not in the function table; it may be obfuscated.")
        self._calls = binary.call_sites(*(f for name in called for f in self._functions[name]))
        self.throws = {function.entry for function in self._functions[_NEVER_RETURNS]}

    def functions(self, *names: str) -> list[Function]:
        return [function for name in names for function in self._functions[name]]

    def calls(self, name: str) -> list[int]:
        """Addresses of all calls of the function."""
        return [pc for function in self._functions[name] for pc in self._calls[function.entry]]

    def hooked_operation(self, call_pc: int, called: str) -> str | None:
        """The hooked logical function that the call at `call_pc` parks or records for, if any."""
        names = [frame.function for frame in self.binary.frames(call_pc)]
        if called == _LEAVE and _PARK not in names:
            return None
        return next((name for name in names if name in HOOKED), None)

    def decoded(self, function: Function) -> tuple[Instruction, ...]:
        code = self.binary.elf.read(function.entry, function.end - function.entry)
        return decode(code, function.entry)


def _parks(code: _RuntimeCode) -> list[ParkSite]:
    sites = []
    for name in (_PARK, _PARK_UNLOCK, _LEAVE):
        for call_pc in code.calls(name):
            operation = code.hooked_operation(call_pc, name)
            if operation and not _is_dead_end(code, call_pc):
                start_pc = _before_loop(code, call_pc) if operation == _LOOPS else call_pc
                return_pc = call_pc + CALL_BYTES
                recorded_pc = _recorded_pc(code, operation, return_pc)
                sites.append(ParkSite(operation, start_pc, return_pc, recorded_pc))
    for function in code.functions(*HOOKED):
        if not any(function.entry <= site.return_pc < function.end for site in sites):
            raise GoTableError(_UNKNOWN_CODE.format(f"{function.name} never calls {_PARK}"))
    return sites


def _wake(code: _RuntimeCode) -> int:
    calls = code.calls(_WAKE)
    for waker in code.functions(*_WAKERS):
        if not any(waker.entry <= pc < waker.end for pc in calls):
            raise GoTableError(_UNKNOWN_CODE.format(f"{_WAKE} was inlined into {waker.name}"))
    for function in code.functions(_WAKE):
        past_check = False
        for each in code.decoded(function):
            if past_check and each.emulated:
                return each.address
            if "rax" in each.written:
                break
            past_check = past_check or each.is_jump
    raise GoTableError(_UNKNOWN_CODE.format(f"{_WAKE} has no place for a probe"))


def _is_dead_end(code: _RuntimeCode, call_pc: int) -> bool:
    """Whether nothing but a throw follows: so it is with nil channels, which block forever."""
    after = call_pc + CALL_BYTES
    for each in decode(code.binary.elf.read(after, _DEAD_END_BYTES), after):
        if each.is_call:
            return each.target in code.throws
        if each.is_jump or not each.falls_through:
            return False
    return False


def _recorded_pc(code: _RuntimeCode, operation: str, return_pc: int) -> int:
    """Where the operation records its event; `return_pc` if that can't be told."""
    parks_in = code.binary.function_at(return_pc)
    calls = [
        call_pc
        for call_pc in code.calls(_RECORD)
        if code.binary.function_at(call_pc) == parks_in
        and code.hooked_operation(call_pc, _RECORD) == operation
    ]
    return calls[0] + CALL_BYTES if len(calls) == 1 else return_pc


def _before_loop(code: _RuntimeCode, call_pc: int) -> int:
    """Last emulated instruction that every path to `call_pc` passes, and passes only once.

    semacquire1 parks again when another goroutine took the semaphore first. Go times the
    operation from before that loop, so the call itself is the wrong place to start the clock.
    """
    function = code.binary.function_at(call_pc)
    assert function is not None  # call_sites found it there
    instructions = {each.address: each for each in code.decoded(function)}
    flow = successors(instructions.values())
    if call_pc not in flow:
        raise GoTableError(f"The code of {function.name} at {function.entry:#x} can't be decoded.")
    in_loop = reachable(flow, flow[call_pc])
    for address in _backwards(flow, call_pc):
        if (
            address not in in_loop
            and address != function.entry
            and instructions[address].emulated
            and call_pc not in reachable(flow, [function.entry], without=address)
        ):
            return address
    raise GoTableError(_UNKNOWN_CODE.format(f"{function.name} has no place to time a wait from"))


def _backwards(flow: dict[int, tuple[int, ...]], start: int) -> list[int]:
    """Addresses that lead to `start`, nearest first (`start` itself is the first)."""
    origins: dict[int, list[int]] = {}
    for address, leads in flow.items():
        for to in leads:
            origins.setdefault(to, []).append(address)
    order = [start]
    seen = {start}
    for address in order:
        for origin in origins.get(address, []):
            if origin not in seen:
                seen.add(origin)
                order.append(origin)
    return order
