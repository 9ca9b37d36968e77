"""Where the scheduler does more for the one wait in eight that it measures itself.

runtime.casgstatus counts how often a goroutine stops running (g.trackingSeq). Every eighth time it
sets g.tracking, and then runs code that it skips for all other stops: it measures how long the
goroutine waits for a processor and, since Go 1.20, for a lock (runtime/proc.go, Go 1.17 to 1.27).
A probe there costs nothing for seven of eight waits.

Profile-guided builds may inline casgstatus, so there may be several copies of each place. The code
itself tells which copy does what, and where it has the address of the runtime.g.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import capstone
from capstone import x86_const

from symbolizer.codeanalysis.cheap_sites import before_call
from symbolizer.codeanalysis.runtime_functions import RuntimeCode, unknown_code
from symbolizer.codeanalysis.semaphores import ACQUIRE
from symbolizer.x86.disasm import Instruction, detailed_decoder, successors
from symbolizer.x86.values import Source

if TYPE_CHECKING:
    from capstone import CsInsn
    from capstone.x86 import X86Op

    from symbolizer.go.binary import Function, GoBinary
    from symbolizer.go.runtime_layout import RuntimeLayout

TRACKING_PERIOD: Final = 8
"""One stop in so many is tracked (gTrackingPeriod, Go 1.17 to 1.27)."""
_SET_STATUS: Final = "runtime.casgstatus"
_CLOCKS: Final = ("runtime.nanotime1", "runtime.nanotime")  # the latter in builds without inlining
_MAKE_SUDOG: Final = "runtime.acquireSudog"
_WORD_BYTES: Final = 8
MAX_PLACES: Final = 32
"""The most places of a program: each copy of casgstatus has a few."""
_NEAR: Final = 16  # instructions between a place and what proves it
_TRACKING_FIELDS: Final = ("waitreason", "tracking", "trackingStamp")


@dataclass(frozen=True, slots=True)
class TrackedSite:
    """A place, as linked, on an instruction that the kernel emulates.

    `goroutine` says where the address of the runtime.g is there: in a register, or in the word at
    RSP + its offset.
    """

    pc: int
    goroutine: Source


@dataclass(frozen=True, slots=True)
class TrackedWaitSites:
    """All places of a program. g.atomicstatus has the new status at each of them.

    At `begins`, a tracked goroutine begins to wait. Since Go 1.20 those that wait for a Mutex or to
    read-lock a RWMutex don't pass it, except in builds without optimizations (`begins_has_locks`).
    Before Go 1.20 other changes of a tracked goroutine's status pass it, too.

    At `locks`, a tracked goroutine begins to wait for a Mutex or RWMutex. Go before 1.20 has no
    such place, and these goroutines pass `begins`.

    At `ends`, a tracked goroutine is made runnable. Since Go 1.20 only those that waited pass it,
    and g.trackingStamp still has the time when a wait for a lock began (`stamps_locks`). Before,
    those that yield pass it, too.

    At `runs`, a tracked goroutine begins to run; g.runnableTime says how long it was runnable, in
    nanoseconds.

    semacquire1 keeps its sudog at `sudog_offset` bytes from its frame pointer; None if it is not
    linked, or keeps it elsewhere.
    """

    begins: tuple[TrackedSite, ...]
    locks: tuple[TrackedSite, ...]
    ends: tuple[TrackedSite, ...]
    runs: tuple[TrackedSite, ...]
    begins_has_locks: bool
    stamps_locks: bool
    sudog_offset: int | None


def tracked_wait_sites(binary: GoBinary) -> TrackedWaitSites:
    """Find the places. Raises GoTableError if no known Go version compiles such code."""
    code = RuntimeCode(binary, called=(*_CLOCKS, _MAKE_SUDOG), others=(ACQUIRE,))
    copies = [_Copy(code, function, calls) for function, calls in _copies(code)]
    stamps_locks = any(copy.has_lock_branch() for copy in copies)
    begins, locks, ends, runs = [], [], [], []
    begins_has_locks = not stamps_locks
    for copy in copies:
        if stamps_locks:
            for load in copy.reason_loads():
                if copy.reads_stamp_after(load):
                    ends.append(copy.first_place(load))
                else:
                    place, has_locks = copy.place_without_locks(load)
                    begins.append(place)
                    begins_has_locks |= has_locks
                    locks += copy.places_of_stamps(load)
        else:
            begins += copy.places_before_running()
            ends += copy.places_of_runnable()
        runs += copy.places_of_running()
    for name, places in (("begins", begins), ("ends", ends), ("runs", runs)):
        if not places:
            raise unknown_code(f"no place in {_SET_STATUS} where a tracked wait {name}")
    if stamps_locks and not locks:
        raise unknown_code(f"no place in {_SET_STATUS} where a tracked wait for a lock begins")
    if len(begins) + len(locks) + len(ends) + len(runs) > MAX_PLACES:
        raise unknown_code(f"more than {MAX_PLACES} places of {_SET_STATUS}")
    return TrackedWaitSites(
        tuple(begins),
        tuple(locks),
        tuple(ends),
        tuple(runs),
        begins_has_locks,
        stamps_locks,
        _sudog_offset(code),
    )


def _sudog_offset(code: RuntimeCode) -> int | None:
    """Where semacquire1 stores the result of acquireSudog, from its frame pointer."""
    calls = set(code.calls(_MAKE_SUDOG))
    for function in code.functions(ACQUIRE):
        steps = {step.address: step for step in code.decoded(function)}
        for call in calls & steps.keys():
            behind = steps.get(steps[call].end)
            if behind is not None and behind.saves and behind.saves[0] == "rax":
                return behind.saves[1] - (code.binary.sp_delta(call) - _WORD_BYTES)
    return None


def _copies(code: RuntimeCode) -> Iterable[tuple[Function, list[int]]]:
    """The functions that have the code of casgstatus, each with its calls there of the clock."""
    functions: dict[int, tuple[Function, list[int]]] = {}
    calls = [pc for name in _CLOCKS for pc in code.calls(name)]
    frames = code.binary.frames_many(calls)
    for pc in sorted(calls):
        if all(frame.function != _SET_STATUS for frame in frames[pc]):
            continue
        function = code.binary.function_at(pc)
        if function is not None:
            functions.setdefault(function.entry, (function, []))[1].append(pc)
    return functions.values()


class _Copy:
    """The code of casgstatus in one function."""

    def __init__(self, code: RuntimeCode, function: Function, clock_calls: list[int]) -> None:
        self._code = code
        self._function = function
        self._layout: RuntimeLayout = code.binary.layout
        self._clock_calls = frozenset(clock_calls)
        text = code.binary.elf.read(function.entry, function.end - function.entry)
        self._text = text
        self._plain = {step.address: step for step in code.decoded(function)}
        self._raw = {raw.address: raw for raw in detailed_decoder().disasm(text, function.entry)}
        self._flow = successors(self._plain.values())
        self._own = self._own_addresses()

    def has_lock_branch(self) -> bool:
        """Whether it looks at what goroutines wait for."""
        return bool(self.reason_loads())

    def reason_loads(self) -> list[int]:
        """The instructions that read g.waitreason."""
        return self._accesses("waitreason", _reads)

    def reads_stamp_after(self, load: int) -> bool:
        """Whether the branch for locks behind a read of g.waitreason uses g.trackingStamp.

        It does so where a wait ends; where one begins it writes it.
        """
        return any(self._reads_stamp_first(call) for call in self._clock_calls_after(load))

    def first_place(self, load: int) -> TrackedSite:
        """The first emulated instruction behind a read of a field, on the one way from there."""
        register = self._base(load)
        for step in self._straight(load):
            if register in step.written and step.address != load and not step.is_call:
                break
            if step.address != load and step.emulated:
                return TrackedSite(step.address, Source(register, 0))
            if register in step.written or not _leads_on(step):
                break
        raise self._unknown(load)

    def place_without_locks(self, load: int) -> tuple[TrackedSite, bool]:
        """The last jump behind a read of g.waitreason that all goroutines pass but those of locks.

        Also whether goroutines that wait for locks pass the place, too.
        """
        register = self._base(load)
        place = None
        for step in self._straight(load):
            if step.is_call or not step.falls_through:
                break
            if step.is_jump and step.is_cheap:
                place = step.address
            if register in step.written:
                break
        if place is not None and self._only_locks_avoid(place, load):
            return TrackedSite(place, Source(register, 0)), False
        return self.first_place(load), True

    def places_of_stamps(self, load: int) -> list[TrackedSite]:
        """Where a wait for a lock begins, behind a read of g.waitreason: the clock is read."""
        return [self._place_of_stamp(call) for call in sorted(self._clock_calls_after(load))]

    def places_before_running(self) -> list[TrackedSite]:
        """Before Go 1.20: the jumps around the place where a goroutine begins to run."""
        places = []
        for store in self._ends_of_tracking():
            jumps = [step for step in self._plain.values() if step.end == store]
            if len(jumps) != 1 or not (jumps[0].is_jump and jumps[0].is_cheap):
                raise self._unknown(store)
            places.append(TrackedSite(jumps[0].address, Source(self._base(store), 0)))
        return places

    def places_of_runnable(self) -> list[TrackedSite]:
        """Before Go 1.20: before the clock is read for a goroutine that becomes runnable.

        Go 1.17 reads the clock for all changes of the status: there, behind the store of the time.
        """
        calls = [(call, self._stamp_access(call)) for call in sorted(self._clock_calls)]
        places = [
            self._place_of_stamp(call)
            for call, access in calls
            if access is not None and not _reads(self._raw[access])
        ]
        stores = () if places else self._accesses("trackingStamp", _stores_register)
        return places or [self.first_place(store) for store in stores]

    def _place_of_stamp(self, call: int) -> TrackedSite:
        """Before a call of the clock whose result is stored in g.trackingStamp."""
        store = self._stamp_access(call)
        slot = None if store is None else self._slot_of(self._base(store), call)
        if slot is None:
            raise self._unknown(call)
        pc = before_call(self._text, self._function.entry, call)
        return TrackedSite(pc, slot)

    def places_of_running(self) -> list[TrackedSite]:
        """The first emulated instructions behind the ends of tracking."""
        return [self._place_of_running(store) for store in self._ends_of_tracking()]

    def _place_of_running(self, store: int) -> TrackedSite:
        register = self._base(store)
        is_there = True
        for step in self._straight(store):
            if step.address != store and step.emulated:
                if is_there:
                    return TrackedSite(step.address, Source(register, 0))
                slot = self._slot_behind(step)
                if slot is not None:
                    return TrackedSite(step.address, slot)
                break
            is_there &= register not in step.written
            if not _leads_on(step):
                break
        raise self._unknown(store)

    def _slot_behind(self, call: Instruction) -> Source | None:
        """Where the stack has the goroutine whose g.runnableTime is reset behind a call."""
        if not call.is_call:
            return None
        for step in self._straight(call.end):
            memory = self._memory_of(step.address, "runnableTime")
            if memory is not None and _writes(self._raw[step.address]):
                return self._slot_of(self._base(step.address), call.address)
            if not _leads_on(step):
                break
        return None

    def _slot_of(self, register: str, call: int) -> Source | None:
        """The word of the stack that is loaded into a register first behind a call."""
        for step in self._straight(self._plain[call].end):
            if register not in step.written:
                continue
            raw = self._raw[step.address]
            if raw.id != x86_const.X86_INS_MOV or raw.operands[1].type != x86_const.X86_OP_MEM:
                return None
            memory = raw.operands[1].mem
            if memory.base != x86_const.X86_REG_RSP or memory.index != x86_const.X86_REG_INVALID:
                return None
            return Source("rsp", int(memory.disp), reads=True)
        return None

    def _reads_stamp_first(self, call: int) -> bool:
        access = self._stamp_access(call)
        return access is not None and _reads(self._raw[access])

    def _stamp_access(self, call: int) -> int | None:
        """The first use of g.trackingStamp on the one way behind a call of the clock."""
        for step in self._straight(self._plain[call].end):
            if self._memory_of(step.address, "trackingStamp") is not None:
                return step.address
            if step.is_call or step.is_jump or not step.falls_through:
                break
        return None

    def _clock_calls_after(self, load: int) -> set[int]:
        """The calls of the clock that are reached without one of them, or another call."""
        seen, pending, calls = {load}, [load], set()
        while pending:
            address = pending.pop()
            if address in self._clock_calls:
                calls.add(address)
                continue
            if address != load and self._is_other_call(address):
                continue
            for following in self._flow[address]:
                if following not in seen:
                    seen.add(following)
                    pending.append(following)
        return calls

    def _is_other_call(self, address: int) -> bool:
        """Whether it calls what is not a part of casgstatus."""
        return self._plain[address].is_call and address not in self._own

    def _only_locks_avoid(self, place: int, load: int) -> bool:
        """Whether all ways from a read of g.waitreason that avoid the place read the clock."""
        seen, pending = {load}, [load]
        while pending:
            address = pending.pop()
            if address == place or address in self._clock_calls:
                continue
            step = self._plain[address]
            if not step.falls_through and not step.is_jump:
                return False
            if step.is_call or not load <= address < load + 256:
                return False
            for following in self._flow[address]:
                if following not in seen:
                    seen.add(following)
                    pending.append(following)
        return True

    def _ends_of_tracking(self) -> list[int]:
        """The instructions that set g.tracking to false."""
        return self._accesses("tracking", _clears)

    def _accesses(self, field: str, is_wanted: Callable[[CsInsn], bool]) -> list[int]:
        return [
            address
            for address in sorted(self._own)
            if self._memory_of(address, field) is not None and is_wanted(self._raw[address])
        ]

    def _own_addresses(self) -> frozenset[int]:
        """The instructions with a displacement that may be of casgstatus, or that are calls."""
        candidates = [
            address
            for address, step in self._plain.items()
            if step.is_call or any(self._memory_of(address, field) for field in _TRACKING_FIELDS)
        ]
        frames = self._code.binary.frames_many(candidates)
        return frozenset(
            address
            for address in candidates
            if any(frame.function == _SET_STATUS for frame in frames[address])
        )

    def _memory_of(self, address: int, field: str) -> X86Op | None:
        """The operand that is a field of runtime.g, by its distance from a register."""
        operand = _operand(self._raw[address])
        if operand is None or operand.mem.disp != self._layout.offset("g", field):
            return None
        return operand

    def _base(self, address: int) -> str:
        """The register that has the address of the runtime.g of a field."""
        raw = self._raw[address]
        operand = _operand(raw)
        return raw.reg_name(operand.mem.base) if operand else ""

    def _straight(self, start: int) -> Iterator[Instruction]:
        """Up to 16 instructions one behind the other."""
        address = start
        for _ in range(_NEAR):
            step = self._plain.get(address)
            if step is None:
                return
            yield step
            address = step.end

    def _unknown(self, address: int) -> Exception:
        return unknown_code(f"the code of {_SET_STATUS} at {address:#x} in {self._function.name}")


def _operand(raw: CsInsn) -> X86Op | None:
    """The operand in memory at a distance from a register that is no part of the stack or code."""
    for operand in raw.operands:
        if operand.type != x86_const.X86_OP_MEM:
            continue
        memory = operand.mem
        if memory.base in (
            x86_const.X86_REG_INVALID,
            x86_const.X86_REG_RSP,
            x86_const.X86_REG_RIP,
        ):
            return None
        return None if memory.index != x86_const.X86_REG_INVALID else operand
    return None


def _leads_on(step: Instruction) -> bool:
    """Whether the next instruction is the only one that can follow."""
    return step.falls_through and not step.is_call and not step.is_jump


def _reads(raw: CsInsn) -> bool:
    operand = _operand(raw)
    return operand is not None and not operand.access & capstone.CS_AC_WRITE


def _writes(raw: CsInsn) -> bool:
    operand = _operand(raw)
    return operand is not None and bool(operand.access & capstone.CS_AC_WRITE)


def _stores_register(raw: CsInsn) -> bool:
    """Whether it writes the value of a register."""
    return _writes(raw) and bool(raw.operands[-1].type == x86_const.X86_OP_REG)


def _clears(raw: CsInsn) -> bool:
    """Whether it writes a 0."""
    value = raw.operands[-1]
    return _writes(raw) and value.type == x86_const.X86_OP_IMM and value.imm == 0
