"""Finds the locks that waits and releases were about, with their names if they have some."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

from ebpfprof.goruntime.heap.heap_locks import HeapLocks
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.waits.lock_uses import RW_MUTEX, LockUse, use_of
from ebpfprof.profile import lock_labels
from ebpfprof.profile.model import Label, Lock, Sample
from ebpfprof.profilers.waits.rows import Hold, StackTotal
from ebpfprof.profilers.waits.stack_table import OTHER_LOCKS
from ebpfprof.profilers.waits.wait_samples import wait_samples
from ebpfprof.profilers.waits.wait_stacks import StackTranslator
from symbolizer.locks.names import Caller, LockNames


@dataclass(slots=True)
class _Uses:
    totals: list[StackTotal] = field(default_factory=list)
    waiting: list[StackTotal] = field(default_factory=list)
    types: set[str] = field(default_factory=set)
    callers: set[Caller] = field(default_factory=set)
    hold: Hold = field(default_factory=Hold)


class LockTable:
    """The locks of one target, by address, with their types and names."""

    def __init__(
        self,
        go: GoTarget,
        translator: StackTranslator,
        totals: Sequence[StackTotal],
        holds: Mapping[int, Hold],
        waiting: Sequence[StackTotal] = (),
        names: LockNames | None = None,
    ) -> None:
        """Group the sums by lock. `holds` has a key for each semaphore.

        `waiting` are open waits: some may be for locks without a release. `names` are by default
        those of the program.
        """
        self._go = go
        self._translator = translator
        self._names = names or LockNames(go.binary)
        self._heap = HeapLocks(go)
        with suppress(Exception):  # with corrupt tables, locks have only addresses
            all_totals = (*totals, *waiting)
            translator.look_up(
                {pc for total in all_totals if total.sema for pc in total.return_pcs}
            )
        self._of_sema: dict[int, int] = {}
        self._uses: dict[int, _Uses] = defaultdict(_Uses)
        self._locks: dict[int, tuple[str, str | None]] = {}
        for total in waiting:
            use = lock_use(translator, total.return_pcs)
            if use:  # else it is the semaphore of a WaitGroup
                self._use(total.sema, use).waiting.append(total)
        self._others = [total for total in totals if total.sema == OTHER_LOCKS]
        known = [total for total in totals if total.sema > OTHER_LOCKS]
        seen = [(total, lock_use(translator, total.return_pcs)) for total in known]
        # First those stacks that tell the address of the lock.
        for total, use in sorted(seen, key=lambda pair: pair[1] is None):
            self._use(total.sema, use).totals.append(total)
        for sema, hold in holds.items():
            if sema in self._of_sema:
                uses = self._uses[self._of_sema[sema]]
                uses.hold = uses.hold.plus(hold)

    def locks(self) -> list[Lock]:
        """All locks, longest waits first; the indistinguishable ones as one."""
        locks = []
        if self._others:
            waits, releases = (
                self._samples(total for total in self._others if total.kind == kind)
                for kind in ("block", "mutex")
            )
            others = str(lock_labels.OTHER_LOCKS[0].value)
            locks.append(Lock(0, "", others, waits, releases, holds=0, held_ns=0))
        for address, uses in self._uses.items():
            lock_type, name = self._described(address)
            locks.append(
                Lock(
                    address=address,
                    type=lock_type,
                    name=name,
                    waits=self._samples(t for t in uses.totals if t.kind == "block"),
                    releases=self._samples(t for t in uses.totals if t.kind == "mutex"),
                    holds=uses.hold.count,
                    held_ns=uses.hold.held_ns,
                    hold_lengths=uses.hold.lengths,
                    still_waiting=self._samples(uses.waiting),
                )
            )
        return sorted(locks, key=lambda lock: (-lock.delay_ns - lock.waiting_ns, lock.address))

    def labels(self, sema: int) -> tuple[Label, ...]:
        """The labels for a sample of this semaphore: its lock's name, if known, and address."""
        if sema == OTHER_LOCKS:
            return lock_labels.OTHER_LOCKS
        address = self._of_sema.get(sema)
        if address is None:
            return ()
        _, name = self._described(address)
        return lock_labels.lock_labels(name, address)

    def _samples(self, totals: Iterable[StackTotal]) -> tuple[Sample, ...]:
        samples = wait_samples(self._translator, [(total, ()) for total in totals]).samples
        return tuple(samples)

    def _use(self, sema: int, use: LockUse | None) -> _Uses:
        address = sema - (use.sema_offset if use else 0)
        uses = self._uses[self._of_sema.setdefault(sema, address)]
        if use:
            uses.types.add(use.type)
            if use.caller:
                uses.callers.add(use.caller)
        return uses

    def _described(self, address: int) -> tuple[str, str | None]:
        if address not in self._locks:
            uses = self._uses[address]
            # The Mutex in a RWMutex has the same address: one stack that tells RWMutex decides.
            lock_type = RW_MUTEX if RW_MUTEX in uses.types else next(iter(uses.types), "")
            name = self._names.variable(address - self._go.load_bias)
            if name is None and lock_type:
                callers = sorted(uses.callers, key=attrgetter("function", "pc"))
                name = self._names.field(callers, lock_type)
                name = name or self._heap.name(address, callers, lock_type)
            name = name or self._names.place(address - self._go.load_bias)
            self._locks[address] = lock_type, name
        return self._locks[address]


def lock_use(translator: StackTranslator, return_pcs: Sequence[int]) -> LockUse | None:
    """What the stack of a wait or a release tells about its lock; None if it tells nothing."""
    if not return_pcs:  # of a release that was not recorded
        return None
    try:
        frames = translator.frames(return_pcs)
    except Exception:  # a corrupt table: wait_samples() reports it
        return None
    return use_of(frames)
