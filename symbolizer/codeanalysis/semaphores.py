"""Probe addresses in the runtime's semaphores, on which sync's locks are built.

runtime.semacquire1 parks in a loop, and sync's locks call it through functions of their own
(Go 1.19 to 1.27: runtime/sema.go). runtime.semrelease1 wakes one of the waiting goroutines.
"""

from dataclasses import dataclass
from typing import Final

from symbolizer.codeanalysis.runtime_functions import RuntimeCode, unknown_code
from symbolizer.go.binary import Function
from symbolizer.x86.call_sites import CALL_BYTES
from symbolizer.x86.disasm import Instruction, on_every_path, reachable, successors

ACQUIRE: Final = "runtime.semacquire1"
WAKE: Final = "runtime.readyWithTime"
RELEASE: Final = "runtime.semrelease1"
THROW: Final = "runtime.throw"
UNLOCK: Final = "runtime.unlock2"
# semacquire1 calls the last, or without inlining the first (runtime/lockrank_off.go).
UNLOCKS: Final = ("runtime.unlock", "runtime.unlockWithRank", UNLOCK)
# sync.Mutex and sync.RWMutex call these to wait; WaitGroup, fdMutex and the runtime call others.
_FOR_LOCKS: Final = frozenset(
    {
        "sync.runtime_SemacquireMutex",
        "sync.runtime_SemacquireRWMutex",
        "sync.runtime_SemacquireRWMutexR",
        "internal/sync.runtime_SemacquireMutex",
    }
)
# The BPF program has room for that many; no known version has more than three.
MAX_LOCK_CALLERS: Final = 4
# The first argument of a Go function arrives in this register. A function that keeps it usually
# stores it in its slot above the return address, which the caller leaves free
# (cmd/compile/abi-internal.md); without inlining, it may be in the function's own frame.
_ARGUMENT: Final = "rax"
_SLOT_OFFSET: Final = 16
_WORD_BYTES: Final = 8
_MAX_SAVES: Final = 64


@dataclass(frozen=True, slots=True)
class ReleaseSite:
    """A call of readyWithTime in semrelease1, as linked.

    There RAX has the sudog of the goroutine that is woken, and R14 the runtime.g that releases.
    """

    call_pc: int

    @property
    def return_pc(self) -> int:
        """Return address of the call."""
        return self.call_pc + CALL_BYTES


@dataclass(frozen=True, slots=True)
class SemaphoreSites:
    """Addresses as linked.

    Each call of semacquire1 that is about to wait passes `start_pc` once, before it parks for the
    first time. Calls that get the semaphore after all, and don't park (again), pass `settled_pc`.
    At both R14 has the runtime.g. `lock_callers` are the return addresses of semacquire1 in the
    functions that locks call: with one of them, its frame belongs to a wait for a lock. The word
    `address_offset` bytes from its frame pointer is the address of the semaphore.
    """

    start_pc: int
    settled_pc: int
    address_offset: int
    lock_callers: tuple[int, ...]
    releases: tuple[ReleaseSite, ...]


def semaphore_sites(code: RuntimeCode, park_pc: int) -> SemaphoreSites:
    """Find the addresses, given that of the call in semacquire1 that parks.

    Raises GoTableError if no known Go version compiles such code.
    """
    function = code.binary.function_at(park_pc)
    if function is None or function.name != ACQUIRE:
        raise unknown_code(f"{ACQUIRE} was inlined")
    instructions = {instruction.address: instruction for instruction in code.decoded(function)}
    throws = {function.entry for function in code.functions(THROW)}
    flow = {
        address: () if instructions[address].target in throws else leads
        for address, leads in successors(instructions.values()).items()
    }
    if park_pc not in flow:
        raise unknown_code(f"the code of {ACQUIRE} at {function.entry:#x} can't be decoded")
    start_pc = _before_loop(instructions, flow, function, park_pc)
    address_offset = _kept_argument(code, function, instructions, flow, start_pc)
    settled = [pc for name in UNLOCKS for pc in code.calls(name) if pc in instructions]
    if len(settled) != 1:
        raise unknown_code(f"{ACQUIRE} does not unlock in the one place known")
    callers = [pc for pc in code.calls(ACQUIRE) if _FOR_LOCKS & set(code.names_at(pc))]
    if len(callers) > MAX_LOCK_CALLERS:
        raise unknown_code(f"locks call {ACQUIRE} in {len(callers)} places")
    releases = [pc for pc in code.calls(WAKE) if RELEASE in code.names_at(pc)]
    if not releases:
        raise unknown_code(f"{RELEASE} never calls {WAKE}")
    return SemaphoreSites(
        start_pc=start_pc,
        settled_pc=settled[0],
        address_offset=address_offset,
        lock_callers=tuple(pc + CALL_BYTES for pc in callers),
        releases=tuple(map(ReleaseSite, releases)),
    )


def require_argument_on_stack(
    code: RuntimeCode,
    function: Function,
    instructions: dict[int, Instruction],
    flow: dict[int, tuple[int, ...]],
    pc: int,
) -> None:
    """Check that every path to `pc` in the function stores its first argument in its slot.

    That is the word at the frame pointer + 16. Raises GoTableError if one does not.
    """
    if _kept_argument(code, function, instructions, flow, pc) != _SLOT_OFFSET:
        raise unknown_code(f"{function.name} does not keep its argument in the slot for it")


def _kept_argument(
    code: RuntimeCode,
    function: Function,
    instructions: dict[int, Instruction],
    flow: dict[int, tuple[int, ...]],
    pc: int,
) -> int:
    """Where every path to `pc` stores the first argument, in bytes from the frame pointer."""
    always = on_every_path(flow, function.entry, pc)
    saves = [
        instruction
        for instruction in instructions.values()
        if instruction.saves and instruction.saves[0] == _ARGUMENT
    ]
    for saving in [save for save in saves if save.address in always][:_MAX_SAVES]:
        assert saving.saves
        before = reachable(flow, [function.entry], without=saving.address)
        offset = saving.saves[1] - (code.binary.sp_delta(saving.address) - _WORD_BYTES)
        # Code without a frame only grows the stack, which restores the arguments.
        is_argument = not any(
            _ARGUMENT in instructions[passed].written and code.binary.sp_delta(passed) > 0
            for passed in before.intersection(_backwards(flow, saving.address))
        )
        kept_there = [i for i in instructions.values() if i.saves and i.saves[1] == saving.saves[1]]
        if offset == _SLOT_OFFSET or (is_argument and kept_there == [saving]):
            return offset
    raise unknown_code(f"{function.name} does not keep its argument on the stack")


def _before_loop(
    instructions: dict[int, Instruction],
    flow: dict[int, tuple[int, ...]],
    function: Function,
    park_pc: int,
) -> int:
    """The last emulated instruction that every path to the park passes, and only once.

    semacquire1 parks again if another goroutine took the semaphore first. Go times the operation
    from before that loop, so the call itself is the wrong place to start the clock.
    """
    in_loop = reachable(flow, flow[park_pc])
    always = on_every_path(flow, function.entry, park_pc)
    for address in _backwards(flow, park_pc):
        if (
            address not in in_loop
            and address != function.entry
            and instructions[address].emulated
            and address in always
        ):
            return address
    raise unknown_code(f"{function.name} has no place to time a wait from")


def _backwards(flow: dict[int, tuple[int, ...]], start: int) -> list[int]:
    """Return the addresses that lead to `start`, nearest first, beginning with itself."""
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
