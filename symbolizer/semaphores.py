"""What must be known of the runtime's semaphores, on which sync's locks are built.

runtime.semacquire1 parks in a loop, and sync's locks call it by way of functions of their own
(Go 1.19 to 1.27: runtime/sema.go). runtime.semrelease1 wakes one of those who wait.
"""

from dataclasses import dataclass
from typing import Final

from symbolizer.callsites import CALL_BYTES
from symbolizer.disasm import Instruction, reachable, reverse, successors
from symbolizer.gobinary import Function
from symbolizer.runtimecode import RuntimeCode, unknown_code

ACQUIRE: Final = "runtime.semacquire1"
WAKE: Final = "runtime.readyWithTime"
RELEASE: Final = "runtime.semrelease1"
UNLOCK: Final = "runtime.unlock2"
# What sync.Mutex and sync.RWMutex call to wait; WaitGroup, fdMutex and the runtime call others.
_FOR_LOCKS: Final = frozenset(
    {
        "sync.runtime_SemacquireMutex",
        "sync.runtime_SemacquireRWMutex",
        "sync.runtime_SemacquireRWMutexR",
        "internal/sync.runtime_SemacquireMutex",
    }
)
# As many as there is room for in the BPF program; no known version has more than three.
MAX_LOCK_CALLERS: Final = 4
# The first argument of a Go function arrives in this register and has its slot on the stack
# above the return address, which the caller keeps free (cmd/compile/abi-internal.md).
_ARGUMENT: Final = "rax"
_RETURN_ADDRESS_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ReleaseSite:
    """A call of readyWithTime in semrelease1, as linked.

    There RAX holds the sudog of the waiter that is woken, and R14 the runtime.g that releases.
    """

    call_pc: int

    @property
    def return_pc(self) -> int:
        """Return address of the call."""
        return self.call_pc + CALL_BYTES


@dataclass(frozen=True, slots=True)
class SemaphoreSites:
    """Addresses as linked.

    `again_pc` is passed when semacquire1, woken in vain, goes back to the head of its loop. From
    there it parks once more, unless it passes `settled_pc`: it got the semaphore after all. At
    both R14 holds the runtime.g. `lock_callers` are the return addresses of semacquire1 in
    what locks call: its frame then belongs to a wait for a lock, and the word at its frame
    pointer + 16 is the address of the lock's semaphore.
    """

    again_pc: int
    settled_pc: int
    lock_callers: tuple[int, ...]
    releases: tuple[ReleaseSite, ...]


def semaphore_sites(code: RuntimeCode, park_pc: int) -> SemaphoreSites:
    """Find them, given the address of the call in semacquire1 that parks.

    Raises GoTableError if the code is not as any known Go version compiles it.
    """
    function = code.binary.function_at(park_pc)
    if function is None or function.name != ACQUIRE:
        raise unknown_code(f"{ACQUIRE} was inlined")
    instructions = {each.address: each for each in code.decoded(function)}
    flow = successors(instructions.values())
    if park_pc not in flow:
        raise unknown_code(f"the code of {ACQUIRE} at {function.entry:#x} can't be decoded")
    _require_argument_on_stack(code, function, instructions, flow, park_pc)
    callers = [pc for pc in code.calls(ACQUIRE) if _FOR_LOCKS & set(code.names_at(pc))]
    if len(callers) > MAX_LOCK_CALLERS:
        raise unknown_code(f"locks call {ACQUIRE} in {len(callers)} places")
    releases = [pc for pc in code.calls(WAKE) if RELEASE in code.names_at(pc)]
    if not releases:
        raise unknown_code(f"{RELEASE} never calls {WAKE}")
    settled = [pc for pc in code.calls(UNLOCK) if pc in instructions]
    again_pc = _again(instructions, flow, function.entry, park_pc)
    if len(settled) != 1 or settled[0] not in reachable(flow, [again_pc], without=park_pc):
        raise unknown_code(f"{ACQUIRE} does not unlock in the one place known")
    return SemaphoreSites(
        again_pc=again_pc,
        settled_pc=settled[0],
        lock_callers=tuple(pc + CALL_BYTES for pc in callers),
        releases=tuple(map(ReleaseSite, releases)),
    )


def _require_argument_on_stack(
    code: RuntimeCode,
    function: Function,
    instructions: dict[int, Instruction],
    flow: dict[int, tuple[int, ...]],
    park_pc: int,
) -> None:
    """Check that every path to the park has put the argument into its slot."""
    for each in instructions.values():
        if each.saves is None or each.saves[0] != _ARGUMENT:
            continue
        slot = code.binary.sp_delta(each.address) + _RETURN_ADDRESS_BYTES
        is_passed = park_pc not in reachable(flow, [function.entry], without=each.address)
        if each.saves[1] == slot and is_passed:
            return
    raise unknown_code(f"{ACQUIRE} does not keep its argument on the stack")


def _again(
    instructions: dict[int, Instruction],
    flow: dict[int, tuple[int, ...]],
    entry: int,
    park_pc: int,
) -> int:
    """An instruction on the way from the park back to it that nothing else leads through.

    Behind the park the function either returns or goes back to the head of its loop. So it is an
    instruction that is reached only by way of the park, and from which there is no way out
    but to the head of the loop.
    """
    after_park = reachable(flow, flow[park_pc])
    own = after_park - reachable(flow, [entry], without=park_pc)
    loop = after_park & reachable(reverse(flow), [park_pc])
    found = [
        address
        for address in own & loop
        if all(to in loop for to in _left_to(flow, own, address))
        and park_pc not in reachable(flow, flow[park_pc], without=address)
    ]
    if not found:
        raise unknown_code(f"{ACQUIRE} has no place that tells when it parks once more")
    return min(found, key=lambda address: (not instructions[address].emulated, address))


def _left_to(flow: dict[int, tuple[int, ...]], within: set[int], start: int) -> set[int]:
    """Where control goes on from `start` when it leaves `within`; -1 for a return."""
    seen, pending, left = {start}, [start], set[int]()
    while pending:
        address = pending.pop()
        for to in flow[address] or (-1,):
            if to not in within:
                left.add(to)
            elif to not in seen:
                seen.add(to)
                pending.append(to)
    return left
