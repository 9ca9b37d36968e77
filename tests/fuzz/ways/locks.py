"""Ways in through locks: the code that takes them, and the stacks that wait for them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

from ebpfprof.export.tables import goroutines as goroutine_tables
from ebpfprof.goruntime.waits.dump import dump
from ebpfprof.goruntime.waits.lock_uses import MUTEX, RW_MUTEX
from ebpfprof.goruntime.waits.lock_waits import WAIT_GROUP
from ebpfprof.goruntime.waits.lock_words import is_free, lock_words
from ebpfprof.process.memory import UnreadableMemory
from symbolizer import GoBinary, SymbolizerError
from symbolizer.codeanalysis.lock_sites import LockSites
from tests.fuzz.driver import Parser
from tests.fuzz.elfs import head_bytes, open_elf
from tests.fuzz.minigo import NEWEST, mini, real
from tests.fuzz.seeds import saved_seeds
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_memory, made_up_process

_LOCKING: Final = {
    *("main.(*vault).hold", "main.(*vault).read", "main.(*vault).holdWrite", "main.transfer"),
    *("sync.(*Mutex).lockSlow", "sync.(*Mutex).unlockSlow", "internal/sync.(*Mutex).lockSlow"),
    *("internal/sync.(*Mutex).unlockSlow", "sync.(*RWMutex).rUnlockSlow", "sync.(*RWMutex).Lock"),
    *("sync.runtime_SemacquireRWMutexR", "sync.runtime_SemacquireMutex", "runtime.gopark"),
    "main.holdShared",
}


@saved_seeds
def code_seeds() -> Sequence[bytes]:
    found = []
    for minor in ("1.19", NEWEST):
        binary = real("oncall", minor)
        have = {function.name for function in binary.functions()}
        found.append(mini(binary, have & _LOCKING))
    return found


def ask_code(data: bytes) -> None:
    binary = GoBinary.open(open_elf(data))
    sites = LockSites(binary)
    for pc in range(binary.text_start, min(binary.text_end, binary.text_start + 4096), 5):
        for place in sites.held(pc):
            assert place.variable or place.offset is not None


# A goroutine waits for a Mutex, one for a RWMutex, one for a WaitGroup, one for a Cond; the others
# may hold locks. As in the parser of goroutines, the input is their heads and their stacks.

_LOCK: Final = memory._STACK + 3 * 4096 + 192  # on the stack of the fourth


def _inside(name: str) -> int:
    found = memory._go().binary.functions_named(name)
    return found[0].entry + 20 if found else 0


def _stack(at: int, words: Sequence[tuple[str | int, int]]) -> bytes:
    """Frames of 32 bytes from `at` + 16 on: return addresses, and a word in each."""
    found = bytearray(memory._STACK_BYTES)
    for number, (function, word) in enumerate(words):
        place = 16 + 32 * number
        below = at + place + 32 if number + 1 < len(words) else 0
        pc = _inside(function) if isinstance(function, str) else function
        struct.pack_into("<QQQ", found, place, below, pc, word)
    return bytes(found)


@cache
def wait_seeds() -> Sequence[bytes]:
    go = memory._go()
    (base, *_) = memory.goroutine_seeds()
    park = next(each.return_pc for each in go.sites.parks if each.is_semaphore)
    notify = next(each.return_pc for each in go.sites.parks if not each.is_semaphore)
    assert go.sites.semaphores
    assert go.sites.semaphores.address_offset == 16
    kinds: Sequence[Sequence[tuple[str | int, int]]] = (
        (
            (park, 0),
            ("internal/sync.runtime_SemacquireMutex", _LOCK + 4),
            ("internal/sync.(*Mutex).lockSlow", 0),
            ("main.exercise", 0),
        ),
        (
            (park, 0),
            ("sync.runtime_SemacquireRWMutexR", _LOCK + 12),
            ("sync.(*RWMutex).RLock", 0),
            ("main.exercise", 0),
        ),
        (
            (park, 0),
            ("sync.runtime_SemacquireWaitGroup", _LOCK + 8),
            ("sync.(*WaitGroup).Wait", 0),
            ("main.exercise", 0),
        ),
        (
            (notify, 0),
            ("sync.runtime_notifyListWait", _LOCK + 16),
            ("sync.(*Cond).Wait", 0),
            ("main.exercise", _LOCK),
        ),
    )
    data = bytearray(base)
    for index, words in enumerate(kinds):
        at = 88 + index * (memory._G_BYTES + memory._STACK_BYTES) + memory._G_BYTES
        data[at : at + memory._STACK_BYTES] = _stack(memory._STACK + index * 4096, words)
    # The lock: locked, with two waiters and a reader.
    at = 88 + 3 * (memory._G_BYTES + memory._STACK_BYTES) + memory._G_BYTES + 192
    struct.pack_into("<6i", data, at, 1 | 2 << 3, 0, 0, 0, 1, 0)
    return (bytes(data),)


def ask_waits(data: bytes) -> None:
    with memory._without_pauses():
        found = dump(made_up_process(memory._go(), memory.parts_of(data)), apart_s=0)
    for each in found.goroutines:
        assert len(each.waits_for.may_hold) <= memory._COUNT
        if lock := each.waits_for.lock:
            assert lock.waiters >= 0
            assert lock.readers >= 0
    text = goroutine_tables.render(found, each_alone=False, width=80, color=False)
    assert all(line.isprintable() and len(line) <= 80 for line in text.splitlines())
    goroutine_tables.encode(found)


# The words of three locks, which follow each other.

_WORDS: Final = 0xC000_0000_00
_KINDS: Final = (MUTEX, RW_MUTEX, WAIT_GROUP)
_APART_BYTES: Final = 32
_SEMAPHORES: Final = (4, 8, 12, 16)


@cache
def word_seeds() -> Sequence[bytes]:
    mutex = struct.pack("<2i", 2 << 3, 0).ljust(_APART_BYTES, b"\0")
    rw_mutex = struct.pack("<6i", 0, 0, 0, 0, 2 - (1 << 30), 2).ljust(_APART_BYTES, b"\0")
    group = struct.pack("<QI", 3, 0).ljust(_APART_BYTES, b"\0")
    return (mutex + rw_mutex + group,)


def ask_words(data: bytes) -> None:
    places = {_WORDS + at * _APART_BYTES: kind for at, kind in enumerate(_KINDS)}
    stub = made_up_memory([(_WORDS, data)])
    found = lock_words(stub, memory._go().binary.layout, places)
    assert found.keys() == places.keys()
    for address, words in found.items():
        free = {is_free(places[address], words, offset) for offset in _SEMAPHORES}
        assert free <= {False, True}
        if places[address] == MUTEX and words["state"] & 1:
            assert free == {False}


LOCKS: Final = (
    Parser(
        "lock-words", ("ebpfprof.goruntime.waits.lock_words",), ask_words, word_seeds, allowed=()
    ),
    Parser(
        "lock-sites",
        ("symbolizer.codeanalysis.lock_sites",),
        ask_code,
        code_seeds,
        share=40,
        frozen=head_bytes,
    ),
    Parser(
        "lock-waits",
        (
            "ebpfprof.goruntime.waits.lock_holders",
            "ebpfprof.goruntime.waits.lock_states",
            "ebpfprof.goruntime.waits.lock_uses",
            "ebpfprof.goruntime.waits.lock_waits",
        ),
        ask_waits,
        wait_seeds,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
)
