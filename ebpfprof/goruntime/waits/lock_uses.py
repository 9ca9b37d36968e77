"""What the stack of a wait or a release tells about its lock: the type, and who called Lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from symbolizer.locks.names import Caller

if TYPE_CHECKING:
    from symbolizer import Frame as GoFrame

MUTEX: Final = "sync.Mutex"
RW_MUTEX: Final = "sync.RWMutex"
# Offsets of semaphores in locks, by the function that calls the runtime (sync/mutex.go,
# internal/sync/mutex.go and sync/rwmutex.go, Go 1.19 to 1.27): Mutex{state int32, sema uint32},
# RWMutex{w Mutex, writerSem uint32, readerSem uint32, ...}.
_IN_MUTEX: Final = (MUTEX, 4)
_IN_WRITER_SEM: Final = (RW_MUTEX, 8)
_IN_READER_SEM: Final = (RW_MUTEX, 12)
_CALLERS: Final[Mapping[str, tuple[str, int]]] = {
    "sync.(*Mutex).lockSlow": _IN_MUTEX,
    "sync.(*Mutex).unlockSlow": _IN_MUTEX,
    "internal/sync.(*Mutex).lockSlow": _IN_MUTEX,
    "internal/sync.(*Mutex).unlockSlow": _IN_MUTEX,
    "sync.(*RWMutex).Lock": _IN_WRITER_SEM,
    "sync.(*RWMutex).rUnlockSlow": _IN_WRITER_SEM,
    "sync.(*RWMutex).RLock": _IN_READER_SEM,
    "sync.(*RWMutex).Unlock": _IN_READER_SEM,
}
# A RWMutex begins with its Mutex, which writers lock first.
_MUTEX_OF_RW_MUTEX: Final = frozenset({"sync.(*RWMutex).Lock", "sync.(*RWMutex).Unlock"})
_SHIM: Final = re.compile(r"[\w/]+\.runtime_Sem(?:acquire|release)\w*")
# Functions of package sync whose lock belongs to their caller. Other functions of the package have
# their own locks, such as those of sync.Once.
_FOR_CALLER: Final = (
    "sync.(*Mutex).",
    "internal/sync.(*Mutex).",
    "sync.(*RWMutex).",
    "sync.(*rlocker).",
    "sync.(*Cond).",
    "sync.Locker.",
)


@dataclass(frozen=True, slots=True)
class LockUse:
    """What a stack tells about its lock: the type, and the offset of the semaphore in it, in bytes.

    `caller` is the function that locked or unlocked it.
    """

    type: str
    sema_offset: int
    caller: Caller | None


def use_of(frames: Sequence[GoFrame]) -> LockUse | None:
    """What the logical frames of a wait or a release show, innermost first; None if nothing.

    The frames begin in the runtime; that of its semaphores' caller is among them.
    """
    names = [frame.function for frame in frames]
    shim = next((i for i, name in enumerate(names) if _SHIM.fullmatch(name)), len(names))
    called_by = names[shim + 1 : shim + 2]
    if not called_by or called_by[0] not in _CALLERS:
        return None
    lock_type, offset = _CALLERS[called_by[0]]
    rest = frames[shim + 1 :]
    inside = list(_inside(rest))
    if _MUTEX_OF_RW_MUTEX & {frame.function for frame in inside}:
        lock_type = RW_MUTEX
    outside = rest[len(inside) :]
    caller = Caller(outside[0].function, outside[0].pc) if outside else None
    return LockUse(lock_type, offset, caller)


def _inside(frames: Iterable[GoFrame]) -> Iterable[GoFrame]:
    for frame in frames:
        if not frame.function.startswith(_FOR_CALLER):
            return
        yield frame
