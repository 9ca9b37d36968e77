"""The words of locks of package sync, and whether they say that a waiter should not wait.

A lock is free for a waiter if nothing that could still happen inside of Lock or Unlock would leave
it waiting there (sync/mutex.go, internal/sync/mutex.go, sync/rwmutex.go, sync/waitgroup.go, Go 1.19
to 1.27):

- in Mutex.Lock, also that of a RWMutex: the bit mutexLocked is not set. That is so for a moment at
  each Unlock, until the goroutine that unlocks has chosen a waiter (mutexWoken), and until that one
  runs; in starvation mode (mutexStarving) until the waiter that is handed the lock runs.
- in RWMutex.Lock, behind readers: readerWait is 0, or no writer is announced. The last reader to
  leave wakes the writer.
- in RWMutex.RLock: no writer is announced. Unlock wakes all readers after it has taken that back.
- in WaitGroup.Wait: the counter is 0. Add wakes all waiters after it has set the state to 0.

So a lock is free only while some goroutine is in one of these functions and does not wait there.
If there is none, the wake is lost: see stuck_check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.goruntime.waits.lock_uses import MUTEX, RW_MUTEX
from ebpfprof.goruntime.waits.lock_waits import WAIT_GROUP, WRITER_SEMAPHORE

if TYPE_CHECKING:
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

_READER_SEMAPHORE: Final = 12
_MUTEX: Final = (("state", "state", "<i4"), ("sema", "sema", "<u4"))
_RW: Final = (
    *(("state", "w", "<i4"), ("writers", "writerSem", "<u4"), ("readers", "readerSem", "<u4")),
    *(("count", "readerCount", "<i4"), ("wait", "readerWait", "<i4")),
)
_GROUP: Final = (("state", "state", "<i8"), ("sema", "sema", "<u4"))
_FIELDS: Final = {MUTEX: _MUTEX, RW_MUTEX: _RW, WAIT_GROUP: _GROUP}
_LOCKED: Final = 1
_MAX_READERS: Final = 1 << 30  # sync/rwmutex.go, rwmutexMaxReaders
_WAITER_SHIFT: Final = 3
_COUNTER_SHIFT: Final = 32
# Locks that count more are none: their memory is used for something else.
_MOST: Final = 1 << 24

LockWords = Mapping[str, int]
"""The fields of a lock, by our names of them."""


def lock_words(
    memory: Memory, layout: RuntimeLayout, types: Mapping[int, str]
) -> dict[int, LockWords]:
    """The words of locks, by address. Those of sync.Cond are left out. Raises TargetGone."""
    by_address: dict[int, LockWords] = {}
    for kind, fields in _FIELDS.items():
        addresses = [address for address, words in types.items() if words == kind]
        places = np.array(addresses, np.uint64)
        records = memory.read_records(places, record(layout, kind, fields))
        names = records.dtype.names or ()
        for address, words in zip(addresses, records, strict=True):
            by_address[address] = {name: int(words[name]) for name in names}
    return by_address


def stays_held(kind: str, samples: Sequence[LockWords]) -> bool:
    """Whether its words show no release of the lock between the samples.

    Others may have come to wait for it meanwhile: the number of waiters only grows until an Unlock
    wakes one. One that spins before it waits sets mutexWoken for a moment (sync/mutex.go,
    internal/sync/mutex.go, Go 1.19 to 1.27).
    """
    if kind not in (MUTEX, RW_MUTEX):
        return all(sample == samples[0] for sample in samples)
    is_writer = all(sample["state"] & _LOCKED for sample in samples)
    is_read = kind == RW_MUTEX and all(_readers(sample) > 0 for sample in samples)
    if not (is_writer or is_read):
        return all(sample == samples[0] for sample in samples)
    return all(_only_grew(kind, *pair) for pair in pairwise(samples))


def _only_grew(kind: str, before: LockWords, after: LockWords) -> bool:
    if before["state"] & _LOCKED > after["state"] & _LOCKED:
        return False
    if before["state"] & _LOCKED and before["state"] >> _WAITER_SHIFT > (
        after["state"] >> _WAITER_SHIFT
    ):
        return False
    if kind == MUTEX:
        return True
    is_same = before["wait"] == after["wait"] or before["count"] >= 0 > after["count"]
    return is_same and _readers(before) <= _readers(after)


def _readers(words: LockWords) -> int:
    count = words["count"]
    return count + _MAX_READERS if count < 0 else count


def is_free(kind: str, words: LockWords, sema_offset: int) -> bool:
    """Whether the lock is free for one that waits for its semaphore at that offset."""
    state = words["state"]
    if kind == WAIT_GROUP:
        return state >> _COUNTER_SHIFT == 0 and words["sema"] < _MOST
    if not 0 <= state >> _WAITER_SHIFT < _MOST:
        return False
    if kind == RW_MUTEX and sema_offset in (WRITER_SEMAPHORE, _READER_SEMAPHORE):
        count, departing = words["count"], words["wait"]
        if not -(1 << 30) <= count < _MOST or not 0 <= departing < _MOST:
            return False
        if sema_offset == WRITER_SEMAPHORE:
            return count >= 0 or departing == 0
        return count >= 0
    return not state & _LOCKED
