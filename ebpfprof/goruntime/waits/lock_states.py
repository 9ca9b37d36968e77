"""The state of locks of package sync, read from memory, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.goruntime.waits.lock_names import LockNamer
from ebpfprof.goruntime.waits.lock_uses import MUTEX, RW_MUTEX
from ebpfprof.goruntime.waits.lock_waits import COND, WAIT_GROUP, LockWait, types_of
from ebpfprof.profile.waiting_for import LockState

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

# sync/mutex.go, internal/sync/mutex.go (mutexLocked, mutexWaiterShift), Go 1.19
# to 1.27. In sync/rwmutex.go a writer makes readerCount negative.
_LOCKED: Final = 1
_WAITER_SHIFT: Final = 3
# sync/waitgroup.go: the counter is above, and from Go 1.25 on bit 31 is a flag.
_COUNTER_SHIFT: Final = 32
_GROUP_WAITERS: Final = (1 << 31) - 1
_MUTEX: Final = (("state", "state", "<i4"),)
_RW: Final = (("state", "w", "<i4"), ("count", "readerCount", "<i4"), ("wait", "readerWait", "<i4"))
_GROUP: Final = (("state", "state", "<i8"),)
_COND: Final = (("notify", "notify", "<u8"),)
_FIELDS: Final = {MUTEX: _MUTEX, RW_MUTEX: _RW, WAIT_GROUP: _GROUP, COND: _COND}
_MAX_LOCKS: Final = 1 << 16


class LockStates:
    """Reads the locks of one target. Looks up each name once."""

    def __init__(self, go: GoTarget) -> None:
        self._go = go
        self._namer = LockNamer(go)

    def read(self, memory: Memory, waits: Mapping[int, LockWait]) -> dict[int, LockState]:
        """The locks of these waits without their names, by address. Raises TargetGone."""
        states = {}
        types = types_of(waits)
        for kind in set(types.values()):
            addresses = [at for at, state in types.items() if state == kind][:_MAX_LOCKS]
            layout = self._go.binary.layout
            places = np.array(addresses, np.uint64)
            records = memory.read_records(places, record(layout, kind, _FIELDS[kind]))
            for address, state in zip(addresses, records, strict=True):
                states[address] = _state(layout, address, kind, state)
        return states

    def named(
        self, states: Mapping[int, LockState], waits: Mapping[int, LockWait]
    ) -> dict[int, LockState]:
        """The same with their names, by the functions that lock them. Raises TargetGone."""
        callers: dict[int, set[LockWait]] = {}
        for wait in waits.values():
            callers.setdefault(wait.address, set()).add(wait)
        return {
            address: replace(
                state,
                name=self._namer.name(
                    address, state.type, {wait.caller for wait in callers[address] if wait.caller}
                ),
            )
            for address, state in states.items()
        }


def _state(layout: RuntimeLayout, address: int, kind: str, words: np.void) -> LockState:
    if kind == WAIT_GROUP:
        state = int(words["state"])
        return LockState(
            address, kind, None, counter=state >> _COUNTER_SHIFT, waiters=state & _GROUP_WAITERS
        )
    if kind == COND:
        notify = int(words["notify"])
        # wait and notify count modulo 2**32 who came and who was woken.
        came, woken = notify & 0xFFFFFFFF, notify >> 32
        return LockState(address, kind, None, waiters=(came - woken) & 0xFFFFFFFF)
    state = int(words["state"])
    waiters = max(0, state >> _WAITER_SHIFT)
    if kind == MUTEX:
        return LockState(address, kind, None, bool(state & _LOCKED), waiters)
    count, departing = int(words["count"]), max(0, int(words["wait"]))
    has_writer = count < 0
    readers = departing if has_writer else count
    return LockState(
        address,
        kind,
        None,
        is_locked=has_writer and departing == 0,
        waiters=waiters,
        readers=readers,
        writer_waits=has_writer and departing > 0,
    )
