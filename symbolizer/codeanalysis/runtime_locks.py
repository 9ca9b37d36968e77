"""Probe addresses for threads that wait for the runtime's own locks, and that release them.

A thread (an M) that does not get a runtime.mutex adds itself to the lock's list and sleeps in
lock2. unlock2 calls unlock2Wake if a thread may be on the list, which removes one thread and wakes
it (runtime/lock_spinbit.go, Go 1.25 to 1.27). Threads that don't sleep pass none of these places.
Before Go 1.25 the runtime keeps no record of the waiting threads that could be followed.
"""

from dataclasses import dataclass
from typing import Final

from symbolizer.codeanalysis.runtime_functions import RuntimeCode, unknown_code
from symbolizer.codeanalysis.semaphores import UNLOCK, require_argument_on_stack
from symbolizer.errors import UnsupportedGoVersion
from symbolizer.go.binary import GoBinary
from symbolizer.x86.call_sites import CALL_BYTES
from symbolizer.x86.disasm import Instruction, successors

_LOCK: Final = "runtime.lock2"
_SLEEP: Final = "runtime.semasleep"
_FIND_NEXT: Final = "runtime.unlock2Wake"
_WAKE: Final = "runtime.semawakeup"
_SYSTEM_STACK: Final = "runtime.systemstack"
_MORE_STACK: Final = "runtime.morestack"
_NEW_STACK: Final = "runtime.newstack"
_THREAD_START: Final = "runtime.mstart"
_THREAD_BODY: Final = "runtime.mstart0"
_ARGUMENT: Final = "rax"  # the first one of a Go function
_NO_THREAD: Final = ("rsp", "rip")
# systemstack makes an indirect call; only indirect calls have this size.
_INDIRECT_CALL_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class UnlockSite:
    """A call of unlock2Wake in unlock2, as linked.

    There RAX has the address of a lock that was just released, and R14 the runtime.g.
    """

    call_pc: int

    @property
    def return_pc(self) -> int:
        """Return address of the call."""
        return self.call_pc + CALL_BYTES


@dataclass(frozen=True, slots=True)
class RuntimeLockSites:
    """Addresses as linked.

    At `sleep_pc` R14 has the runtime.g whose thread is about to sleep, and the word at the frame
    pointer + 16 is the address of the lock. At `wake_pc` the register `wake_register` has the
    runtime.m that is about to be woken, or 0.
    `system_stack_pc` and `more_stack_pc` are the return addresses of systemstack's and morestack's
    calls on the system stack: there the stack continues on the goroutine's own. `thread_start_pc`
    is the return address of mstart0 in mstart, where the system stacks of all Go threads begin.
    """

    sleep_pc: int
    unlocks: tuple[UnlockSite, ...]
    wake_pc: int
    wake_register: str
    system_stack_pc: int
    more_stack_pc: int
    thread_start_pc: int


def runtime_lock_sites(binary: GoBinary) -> RuntimeLockSites:
    """Find the addresses.

    Raises UnsupportedGoVersion for versions without a record of the waiting threads, and
    GoTableError if no known Go version compiles such code.
    """
    layout = binary.layout
    if not layout.has("m", "mWaitList.startTicks"):
        raise UnsupportedGoVersion(
            f"{binary.version} keeps no record of the threads that wait for a lock of its runtime "
            "(Go 1.25 and newer do)"
        )
    code = RuntimeCode(
        binary,
        called=(_SLEEP, _FIND_NEXT, _WAKE, _NEW_STACK, _THREAD_BODY),
        others=(_LOCK, UNLOCK, _SYSTEM_STACK),
    )
    unlock_pcs = [pc for pc in code.calls(_FIND_NEXT) if code.names_at(pc)[:1] == [UNLOCK]]
    if not unlock_pcs:
        raise unknown_code(f"{UNLOCK} never calls {_FIND_NEXT}")
    wake_pc, register = _wake(code, layout.offset("m", "mOS.waitsema"))
    return RuntimeLockSites(
        sleep_pc=_sleep(code),
        unlocks=tuple(map(UnlockSite, unlock_pcs)),
        wake_pc=wake_pc,
        wake_register=register,
        system_stack_pc=_system_stack(code),
        more_stack_pc=_return_pc(code, _NEW_STACK, _MORE_STACK),
        thread_start_pc=_return_pc(code, _THREAD_BODY, _THREAD_START),
    )


def _sleep(code: RuntimeCode) -> int:
    """The call in lock2 that sleeps, with the lock's address in its argument's slot."""
    calls = [pc for pc in code.calls(_SLEEP) if code.names_at(pc)[:1] == [_LOCK]]
    function = code.binary.function_at(calls[0]) if len(calls) == 1 else None
    if function is None or function.name != _LOCK:
        raise unknown_code(f"{_LOCK} does not sleep in the one place known")
    instructions = {instruction.address: instruction for instruction in code.decoded(function)}
    flow = successors(instructions.values())
    if calls[0] not in flow:
        raise unknown_code(f"the code of {_LOCK} at {function.entry:#x} can't be decoded")
    require_argument_on_stack(code, function, instructions, flow, calls[0])
    return calls[0]


def _wake(code: RuntimeCode, semaphore_offset: int) -> tuple[int, str]:
    """The place before the thread's semaphore is raised, and the register that has the thread.

    That is the call of semawakeup. Where that is inlined, as usual, it is an instruction before it
    from which the code is straight: no jump leads in between, and nothing writes the register.
    """
    calls = [pc for pc in code.calls(_WAKE) if code.names_at(pc)[:1] == [_FIND_NEXT]]
    if len(calls) == 1:
        return calls[0], _ARGUMENT
    for function in code.functions(_FIND_NEXT):
        instructions = code.decoded(function)
        jumped_to = {instruction.target for instruction in instructions if instruction.is_jump}
        raises = [
            (index, pair.adds_to[0])
            for index, pair in enumerate(instructions)
            if pair.adds_to and pair.adds_to[1] == semaphore_offset
            if code.names_at(pair.address)[:1] == [_WAKE]
        ]
        if len(raises) != 1 or raises[0][1] in _NO_THREAD:
            continue
        index, register = raises[0]
        place = _straight_before(instructions[: index + 1], jumped_to, register)
        if place is not None and place != function.entry:
            return place, register
    raise unknown_code(f"{_FIND_NEXT} has no place for a probe")


def _straight_before(
    instructions: tuple[Instruction, ...], jumped_to: set[int | None], register: str
) -> int | None:
    """The last emulated instruction from which straight code leads to the last instruction."""
    next_address = instructions[-1].address
    for instruction in reversed(instructions[:-1]):
        if (
            next_address in jumped_to
            or instruction.end != next_address
            or register in instruction.written
        ):
            return None
        if not instruction.falls_through or instruction.is_call:
            return None
        if instruction.emulated:
            return instruction.address
        next_address = instruction.address
    return None


def _system_stack(code: RuntimeCode) -> int:
    """The return address of systemstack's call on the system stack, its first one."""
    for function in code.functions(_SYSTEM_STACK):
        for instruction in code.decoded(function):
            if (
                instruction.is_call
                and instruction.target is None
                and instruction.size == _INDIRECT_CALL_BYTES
            ):
                return instruction.end
    raise unknown_code(f"{_SYSTEM_STACK} makes no call")


def _return_pc(code: RuntimeCode, called: str, caller: str) -> int:
    """The return address of the only call of one function in another."""
    calls = [pc for pc in code.calls(called) if code.names_at(pc)[:1] == [caller]]
    if len(calls) != 1:
        raise unknown_code(f"{caller} does not call {called} in the one place known")
    return calls[0] + CALL_BYTES
