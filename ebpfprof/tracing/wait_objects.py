"""What goroutines of a timeline wait for, by the words of their parks (bpf/trace/waited_for.h)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import printable
from ebpfprof.goruntime.waits.file_waits import file_waits
from ebpfprof.goruntime.waits.lock_names import LockNamer
from ebpfprof.goruntime.waits.lock_uses import RW_MUTEX
from ebpfprof.goruntime.waits.lock_waits import COND, LockPlaces, LockWaitReader
from ebpfprof.profile import file_words
from ebpfprof.timeline.model import WaitObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.goroutines.frames import StackFrames
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from ebpfprof.profile.waiting_for import FileWait
    from ebpfprof.timeline.steps import TraceStep
    from symbolizer.locks.names import Caller

_FILE: Final = "IO wait"
_CHANNEL: Final = ("chan receive", "chan send")
# Keys of files that a sample saw: no words of a park, whose low bits are an address.
_SAMPLED_AT: Final = 1 << 63


class _Lock(NamedTuple):
    address: int
    type: str
    caller: Caller | None


class SampledWaits:
    """What goroutines wait for in samples; keys are those of events, except for files."""

    def __init__(self, go: GoTarget, memory: Memory, frames: StackFrames) -> None:
        self._go, self._memory = go, memory
        self._locks = LockWaitReader(go, memory, frames)
        self._descriptors = go.target.descriptors()
        self._list_lock = go.binary.layout.offset("notifyList", "lock")
        self._known: dict[int, int] = {}
        self._files: dict[FileWait, int] = {}
        self.files: dict[int, FileWait] = {}
        """By key."""

    def keys(self, goroutines: Sequence[Goroutine]) -> dict[int, int]:
        """The keys of what they wait for, by goid; each wait is looked up once.

        Raises TargetGone or GoTableError.
        """
        waits = {goroutine.goid: goroutine.wait for goroutine in goroutines if goroutine.is_parked}
        new = [
            goroutine
            for goroutine in goroutines
            if goroutine.goid in waits and waits[goroutine.goid] not in self._known
        ]
        before, self._known = self._known, {}
        for wait in waits.values():
            self._known[wait] = before.get(wait, 0)
        by_address = {goroutine.address: goroutine.wait for goroutine in new}
        for address, lock in self._locks.read(new).items():
            at = lock.address + lock.sema_offset
            self._known[by_address[address]] = at + self._list_lock * (lock.type == COND)
        polling = [goroutine.address for goroutine in new if goroutine.state == _FILE]
        files = file_waits(self._memory, self._go.binary.layout, self._descriptors, polling)
        for address, file in files.items():
            key = self._files.setdefault(file, _SAMPLED_AT + len(self._files))
            self.files[key] = file
            self._known[by_address[address]] = key
        return {goid: self._known[wait] for goid, wait in waits.items() if self._known[wait]}


class WaitObjects:
    """Names what the steps of one timeline wait for."""

    def __init__(self, go: GoTarget, frames: StackFrames) -> None:
        """Raises GoTableError."""
        self._places, self._namer = LockPlaces(go, frames), LockNamer(go)
        layout = go.binary.layout
        self._channel_lock = layout.offset("hchan", "lock")
        self._list_lock = layout.offset("notifyList", "lock")

    def named(
        self,
        steps: Iterable[TraceStep],
        stacks: Mapping[int, tuple[int, ...]],
        files: Mapping[int, FileWait],
    ) -> dict[int, WaitObject]:
        """All objects that are known, by key, given what is known of files.

        Raises GoTableError.
        """
        waits = {(step.on, step.word, step.stack) for step in steps if step.on}
        objects: dict[int, WaitObject] = {}
        locks: dict[int, set[_Lock]] = defaultdict(set)
        for key, word, stack in waits:
            if word == _FILE:
                if key in files:
                    name = printable(file_words.wait(files[key], is_one=False))
                    objects[key] = WaitObject(name, files[key].file)
            elif word.startswith(_CHANNEL):
                address = key - self._channel_lock
                objects[key] = WaitObject(f"chan at {address:#x}", is_named=False)
            elif lock := self._lock(key, stacks.get(stack, ())):
                locks[key].add(lock)
        return objects | dict(self._named_locks(locks))

    def _lock(self, key: int, pcs: tuple[int, ...]) -> _Lock | None:
        place = self._places.place(pcs) if pcs else None
        if place is None:
            return None
        at = key - self._list_lock * (place.type == COND)
        return _Lock(at - place.sema_offset, place.type, place.caller)

    def _named_locks(self, locks: Mapping[int, set[_Lock]]) -> Iterator[tuple[int, WaitObject]]:
        by_address: dict[int, set[_Lock]] = defaultdict(set)
        for some in locks.values():
            for goroutine in some:
                by_address[goroutine.address].add(goroutine)
        for key, some in locks.items():
            addresses = {goroutine.address for goroutine in some}
            if len(addresses) > 1:
                continue  # another lock took the place of one
            (address,) = addresses
            uses = by_address[address]
            types = {use.type for use in uses}
            # The Mutex in a RWMutex has the same address.
            kind = RW_MUTEX if RW_MUTEX in types else min(types)
            callers = {use.caller for use in uses if use.caller}
            name = self._namer.name(address, kind, callers)
            place = f"{kind} at {address:#x}"
            if name:
                yield key, WaitObject(printable(name), place=place)
            else:
                yield key, WaitObject(place, is_named=False)
