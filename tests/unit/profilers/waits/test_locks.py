"""Locks inferred from stacks, one by one and together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.waits.lock_uses import MUTEX, RW_MUTEX, LockUse
from ebpfprof.profile.model import Frame, Label, Location
from ebpfprof.profilers.waits.locks import LockTable, lock_use
from ebpfprof.profilers.waits.rows import Hold, StackTotal, Waiting
from ebpfprof.profilers.waits.wait_stacks import StackTranslator, WaitStack
from symbolizer import Frame as GoFrame
from symbolizer import FuncRole, GoTableError
from symbolizer.locks.names import Caller, LockNames

PARK = ("runtime.gopark", "runtime.goparkunlock", "runtime.semacquire1")
WAKE = ("runtime.readyWithTime", "runtime.semrelease1")
LOCK = (*PARK, "sync.runtime_SemacquireMutex", "sync.(*Mutex).lockSlow", "sync.(*Mutex).Lock")
UNLOCK = (*WAKE, "sync.runtime_Semrelease", "sync.(*Mutex).unlockSlow", "sync.(*Mutex).Unlock")
NEW_LOCK = (
    *PARK,
    "internal/sync.runtime_SemacquireMutex",
    "internal/sync.(*Mutex).lockSlow",
    "internal/sync.(*Mutex).Lock",
    "sync.(*Mutex).Lock",
)
READ = (*PARK, "sync.runtime_SemacquireRWMutexR", "sync.(*RWMutex).RLock")
WRITE = (*PARK, "sync.runtime_SemacquireRWMutex", "sync.(*RWMutex).Lock")
OLD_READ = (*PARK, "sync.runtime_SemacquireMutex", "sync.(*RWMutex).RLock")
R_UNLOCK = (
    *WAKE,
    "sync.runtime_Semrelease",
    "sync.(*RWMutex).rUnlockSlow",
    "sync.(*RWMutex).RUnlock",
)
W_UNLOCK = (*WAKE, "sync.runtime_Semrelease", "sync.(*RWMutex).Unlock")
GOEXIT = "runtime.goexit"
LOAD_BIAS = 0x5500_0000_0000
HEAP = 0xC000_0120_00


class Stacks:
    """A translator to which every address is one frame."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.looked_up: set[int] = set()

    def of(self, *names: str) -> tuple[int, ...]:
        """The return addresses of a stack of these functions."""
        start = len(self.names) + 1
        self.names += names
        return tuple(range(start, len(self.names) + 1))

    def frames(self, return_pcs: Sequence[int]) -> list[GoFrame]:
        names = [self.names[pc - 1] for pc in return_pcs]
        if "corrupt" in names:
            raise GoTableError("corrupt")
        frames = zip(names, return_pcs, strict=True)
        return [GoFrame(name, "/x.go", 1, 1, FuncRole.NORMAL, pc) for name, pc in frames]

    def look_up(self, return_pcs: Iterable[int]) -> None:
        self.looked_up |= set(return_pcs)

    def stack(self, kind: Waiting, return_pcs: Sequence[int]) -> WaitStack:
        shown = [
            Location(frame.pc, None, (Frame(frame.function, "/x.go", 1),))
            for frame in self.frames(return_pcs)
        ]
        return WaitStack(tuple(shown), is_cut=False, key=hash(tuple(return_pcs)))

    @property
    def translator(self) -> StackTranslator:
        return cast("StackTranslator", self)


class Names:
    """Stands in for LockNames: says what it was asked for."""

    def variable(self, address: int) -> str | None:
        return f"variable {address:#x}" if 0 <= address < 1 << 16 else None

    def field(self, callers: Sequence[Caller], kind: str) -> str | None:
        return f"{kind} of {', '.join(sorted({caller.function for caller in callers}))}"

    def place(self, address: int) -> str | None:
        return None


@pytest.fixture
def stacks() -> Stacks:
    return Stacks()


def caller_of(*names: str) -> str | None:
    found = use_in(*names)
    assert found
    return found.caller.function if found.caller else None


def use_in(*names: str) -> LockUse | None:
    stacks = Stacks()
    return lock_use(stacks.translator, stacks.of(*names))


@pytest.mark.parametrize(
    ("names", "lock_type", "offset"),
    [
        (LOCK, MUTEX, 4),
        (UNLOCK, MUTEX, 4),
        (NEW_LOCK, MUTEX, 4),
        (READ, RW_MUTEX, 12),
        (OLD_READ, RW_MUTEX, 12),
        (WRITE, RW_MUTEX, 8),
        (R_UNLOCK, RW_MUTEX, 8),
        (W_UNLOCK, RW_MUTEX, 12),
        # The Mutex with which a RWMutex begins.
        ((*LOCK, "sync.(*RWMutex).Lock"), RW_MUTEX, 4),
        ((*NEW_LOCK, "sync.(*RWMutex).Lock"), RW_MUTEX, 4),
        ((*UNLOCK, "sync.(*RWMutex).Unlock"), RW_MUTEX, 4),
        ((*READ, "sync.(*rlocker).Lock"), RW_MUTEX, 12),
    ],
)
def test_functions_of_sync_imply_lock_type_and_offset(
    names: tuple[str, ...], lock_type: str, offset: int
) -> None:
    found = use_in(*names, "main.f", GOEXIT)
    assert found
    assert (found.type, found.sema_offset) == (lock_type, offset)
    assert found.caller == Caller("main.f", len(names) + 1)


@pytest.mark.parametrize(
    "names",
    [
        (),
        PARK,
        (*PARK, "sync.runtime_Semacquire", "sync.(*WaitGroup).Wait", "main.f"),
        (*PARK, "sync.runtime_SemacquireWaitGroup", "sync.(*WaitGroup).Wait", "main.f"),
        (*PARK, "internal/poll.runtime_Semacquire", "internal/poll.(*fdMutex).rwlock", "main.f"),
        (*PARK, "sync.runtime_SemacquireMutex"),
        ("runtime.gopark", "runtime.chanrecv", "runtime.chanrecv1", "main.f"),
        ("runtime.gopark", "runtime.selectgo", "sync.(*Mutex).Lock", "main.f"),
        # Of another package that has the name of a function of sync's.
        (*PARK, "main.runtime_SemacquireMutex", "main.(*Mutex).lockSlow", "main.f"),
        (*LOCK, "corrupt"),
    ],
)
def test_other_waits_imply_no_lock(names: tuple[str, ...]) -> None:
    assert use_in(*names) is None


@pytest.mark.parametrize(
    ("outside", "caller"),
    [
        (("main.f", GOEXIT), "main.f"),
        (("main.(*T).Lock", "main.f", GOEXIT), "main.(*T).Lock"),
        (("sync.(*Mutex).Lock-fm", "main.f", GOEXIT), "main.f"),
        (("sync.(*Cond).Wait", "main.f", GOEXIT), "main.f"),
        # These have locks of their own, which their callers can't name.
        (("sync.(*Once).doSlow", "sync.(*Once).Do", "main.f"), "sync.(*Once).doSlow"),
        (("sync.(*Pool).pinSlow", "sync.(*Pool).Get", "main.f"), "sync.(*Pool).pinSlow"),
        (("sync.(*Map).Load", "main.f"), "sync.(*Map).Load"),
        (
            ("internal/sync.(*HashTrieMap[...]).Store", "sync.(*Map).Store", "main.f"),
            "internal/sync.(*HashTrieMap[...]).Store",
        ),
        (("sync.example.com/x.F", "main.f"), "sync.example.com/x.F"),
        ((), None),
    ],
)
def test_the_caller_outside_of_sync_names_the_lock(
    outside: tuple[str, ...], caller: str | None
) -> None:
    assert caller_of(*LOCK, *outside) == caller


def table_of(
    stacks: Stacks,
    totals: Sequence[StackTotal],
    holds: dict[int, Hold] | None = None,
    waiting: Sequence[StackTotal] = (),
) -> LockTable:
    target: Any = SimpleNamespace(binary=None, load_bias=LOAD_BIAS)
    go, names = cast("GoTarget", target), cast("LockNames", Names())
    return LockTable(go, stacks.translator, totals, holds or {}, waiting, names)


def waited(sema: int, pcs: tuple[int, ...], count: float = 1, delay_ns: int = 10) -> StackTotal:
    return StackTotal("block", sema, pcs, count, delay_ns)


def released(sema: int, pcs: tuple[int, ...], count: float = 1, delay_ns: int = 10) -> StackTotal:
    return StackTotal("mutex", sema, pcs, count, delay_ns)


def test_all_semaphores_of_a_rwmutex_are_one_lock(stacks: Stacks) -> None:
    table = table_of(
        stacks,
        [
            # Cut off before it shows that the Mutex is a RWMutex's.
            waited(HEAP + 4, stacks.of(*LOCK), 1, 0),
            waited(HEAP + 4, stacks.of(*LOCK, "sync.(*RWMutex).Lock", "main.write"), 1, 100),
            waited(HEAP + 8, stacks.of(*WRITE, "main.write"), 2, 200),
            waited(HEAP + 12, stacks.of(*READ, "main.read"), 3, 300),
            released(HEAP + 8, stacks.of(*R_UNLOCK, "main.read"), 4, 400),
            released(HEAP + 12, stacks.of(*W_UNLOCK, "main.write"), 5, 500),
        ],
        {HEAP + 4: Hold(2, 20), HEAP + 8: Hold(1, 5), HEAP + 0x100: Hold(9, 9)},
    )
    (lock,) = table.locks()
    assert (lock.address, lock.type) == (HEAP, RW_MUTEX)
    assert lock.name == "sync.RWMutex of main.read, main.write"
    assert (lock.contentions, lock.delay_ns, lock.holds, lock.held_ns) == (9, 900, 3, 25)
    assert sum(sample.values[0] for sample in lock.waits) == 7
    expected = (Label("lock", str(lock.name)), Label("lock_address", f"{HEAP:#x}"))
    assert [table.labels(HEAP + offset) for offset in (4, 8, 12)] == [expected] * 3
    assert table.labels(HEAP + 16) == table.labels(0) == ()


def test_locks_are_ordered_by_how_long_others_waited(stacks: Stacks) -> None:
    unlock = stacks.of(*UNLOCK, "main.f")
    semas = [HEAP + offset for offset in (4, 12, 20, 28)]
    delays_ns = [5, 50, 500, 50]
    totals = [released(sema, unlock, 1, ns) for sema, ns in zip(semas, delays_ns, strict=True)]
    found = [lock.address for lock in table_of(stacks, totals).locks()]
    assert found == [HEAP + 16, HEAP + 8, HEAP + 24, HEAP]


def test_a_package_variable_is_looked_up_by_its_linked_address(stacks: Stacks) -> None:
    sema = LOAD_BIAS + 0x1000 + 4
    (lock,) = table_of(stacks, [released(sema, stacks.of(*UNLOCK, "main.f"))]).locks()
    assert (lock.address, lock.name) == (LOAD_BIAS + 0x1000, "variable 0x1000")


def test_waits_without_a_semaphore_make_no_lock(stacks: Stacks) -> None:
    totals = [waited(0, stacks.of("runtime.gopark", "runtime.chanrecv1", "main.f"))]
    assert table_of(stacks, totals).locks() == []


@pytest.mark.parametrize("broken_first", [True, False])
def test_a_stack_without_lock_functions_makes_no_second_lock(
    stacks: Stacks, broken_first: bool
) -> None:
    totals = [
        waited(HEAP + 4, stacks.of(*PARK)),
        waited(HEAP + 4, stacks.of(*LOCK, "main.f")),
    ]
    (lock,) = table_of(stacks, totals if broken_first else totals[::-1]).locks()
    assert (lock.address, lock.type) == (HEAP, MUTEX)
    assert sum(sample.values[0] for sample in lock.waits) == 2


def test_an_unknown_lock_is_named_by_its_semaphore(stacks: Stacks) -> None:
    (lock,) = table_of(stacks, [waited(HEAP + 4, stacks.of(*PARK))]).locks()
    assert (lock.address, lock.type, lock.name) == (HEAP + 4, "", None)


def test_open_waits_of_a_lock_are_counted_separately(stacks: Stacks) -> None:
    wait_group = (*PARK, "sync.runtime_Semacquire", "sync.(*WaitGroup).Wait", "main.f")
    waiting = [
        waited(HEAP + 4, stacks.of(*LOCK, "main.hang")),
        waited(HEAP + 0x20, stacks.of(*wait_group)),
        waited(HEAP + 0x44, stacks.of(*LOCK, "main.g")),
    ]
    totals = [released(HEAP + 0x44, stacks.of(*UNLOCK, "main.f"))]
    table = table_of(stacks, totals, waiting=waiting)
    assert table.labels(HEAP + 4) == (
        Label("lock", "sync.Mutex of main.hang"),
        Label("lock_address", f"{HEAP:#x}"),
    )
    assert table.labels(HEAP + 0x20) == ()
    lock, hung = sorted(table.locks(), key=lambda lock: -lock.address)
    assert (lock.address, lock.contentions, lock.waits) == (HEAP + 0x40, 1, ())
    assert lock.name == "sync.Mutex of main.f, main.g"
    assert (hung.address, hung.contentions, hung.waits) == (HEAP, 0, ())
    assert [len(each.still_waiting) for each in (lock, hung)] == [1, 1]
    assert {pc for each in (*totals, *waiting) for pc in each.return_pcs} <= stacks.looked_up


class CorruptStacks(Stacks):
    """A translator that can't read the tables."""

    def look_up(self, return_pcs: Iterable[int]) -> None:
        raise GoTableError("corrupt")

    def bare_stack(self, return_pcs: Sequence[int]) -> WaitStack:
        locations = tuple(Location(pc, None, ()) for pc in return_pcs)
        return WaitStack(locations, is_cut=False, key=hash(tuple(return_pcs)))


def test_corrupt_tables_leave_addresses() -> None:
    stacks = CorruptStacks()
    totals = [released(HEAP + 4, stacks.of(*UNLOCK, "corrupt"), 3, 30)]
    (lock,) = table_of(stacks, totals).locks()
    assert (lock.address, lock.type, lock.name) == (HEAP + 4, "", None)
    assert (lock.contentions, lock.delay_ns) == (3, 30)
