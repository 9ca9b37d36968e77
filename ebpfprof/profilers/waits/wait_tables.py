"""Reads the maps of the program of waits: sums, rows of goroutines, rows of locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from ebpfprof.profilers.waits.length_table import (
    NO_STACKS,
    LengthTable,
    StackLengths,
    hold_key,
    run_queue_key,
)
from ebpfprof.profilers.waits.pair_table import PairTable
from ebpfprof.profilers.waits.rows import (
    Hold,
    KnownStack,
    LastWait,
    StackSums,
    StackTotal,
    Waiting,
    WaitsConfig,
)
from ebpfprof.profilers.waits.stack_table import StackTable
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

if TYPE_CHECKING:  # numpy takes long to import: only when maps are read
    import numpy.typing as npt

COUNT_SHIFT: Final = 16
"""Counts in the kernel are fixed-point numbers with so many fractional bits."""
_STATES = c_facts.enum("waits/wait.h", "state")
_OVER, _WAITS, _WOKEN = (_STATES[name] for name in ("OVER", "WAITS", "WOKEN"))
_DELAY_SHIFT = c_facts.number("waits/one_in_eight.h", "DELAY_SHIFT")
_LONG_SHIFT = c_facts.number("waits/one_in_eight.h", "LONG_SHIFT")
_UNIT_SHIFT = c_facts.number("waits/locks.h", "UNIT_SHIFT")
_WAITERS_BITS = c_facts.number("waits/locks.h", "WAITERS_BITS")
_TRACKED_QUEUE = c_facts.number("waits/one_in_eight.h", "TRACKED_QUEUE")
_ALIGNMENT = 4  # of semaphores
_SPREAD = (
    *("parks", "probed", "unknown", "runs", "runnable_ns", "again", "again_ns", "row_squares"),
)
_NONE = StackSums()
_MODULUS = 1 << 64
_Row = tuple[int, KnownStack | None, int, int]
"""A key, its stack or pair, the count in the kernel's unit and the delay (ns)."""
_Sums = tuple[int, KnownStack, int, int, WaitHistogram]
"""The same with the lengths, and with what these add up to."""
_TARGET_SHIFT = c_facts.number("common/keys.h", "TARGET_SHIFT")


class _Read(NamedTuple):
    """The sums of stacks and of pairs at one moment, and all that is known by length."""

    stacks: Iterator[_Sums]
    pairs: Iterator[_Sums]
    by_length: StackLengths


class WaitTables:
    """The maps of the program of waits."""

    def __init__(self, program: BpfProgram, config: WaitsConfig) -> None:
        """`program` need not be loaded yet."""
        self._program = program
        self._config = config
        self._taken: dict[int, StackSums] = {}
        self._taken_pairs: dict[int, StackSums] = {}
        self.stacks = StackTable(program, has_labels=config.labels, by_lock=config.by_lock)
        self._pairs = PairTable(program, self.stacks) if config.wakers else None
        self._lengths = LengthTable(program, COUNT_SHIFT)

    def snapshot(self) -> dict[int, list[StackTotal]]:
        """The sums since the start, by target. They never decrease between calls."""
        totals: dict[int, list[StackTotal]] = {}
        read = self._read()
        # Those without a count: the kernel is writing them, or they only wake (wakers.h).
        stacks = (row for row in read.stacks if row[2])
        pairs = (row for row in read.pairs if row[2] or row[3])
        for _, stack, count, delay_ns, lengths in (*stacks, *pairs):
            total = StackTotal(
                stack.kind,
                stack.sema,
                stack.return_pcs,
                count / (1 << COUNT_SHIFT),
                delay_ns,
                stack.labels,
                waker=stack.waker,
                lengths=lengths,
            )
            totals.setdefault(stack.target, []).append(total)
        return totals

    def _read(self, index: int | None = None) -> _Read:
        """Read the sums of one target, or of all."""
        import numpy as np

        keys, totals = self._program.maps["totals"].rows()
        self.stacks.read(set(keys.tolist()))
        pairs = [*self._pairs.sums()] if self._pairs else []
        of_length = None
        if index is not None:  # others may be hundreds, each of which is read by itself
            is_ours = self._are_of(index, keys)
            keys, totals = keys[is_ours], totals[is_ours]
            if self._pairs is None:
                of_length = np.concatenate((keys, keys ^ np.uint64(run_queue_key(0))))
        columns = (keys.tolist(), totals["count"].tolist(), totals["delay_ns"].tolist())
        by_length = self._lengths.read(of_length)

        def sums(rows: Iterable[_Row]) -> Iterator[_Sums]:
            for key, stack, count, delay_ns in rows:
                if stack and index in (None, stack.target):
                    units, ns, lengths = by_length.of(key)
                    lengths = self._weighted(stack.kind, lengths)
                    yield key, stack, (count + units) % _MODULUS, delay_ns + ns, lengths

        stacks = map(self.stacks.get, columns[0])
        return _Read(
            sums(zip(columns[0], stacks, *columns[1:], strict=True)), sums(pairs), by_length
        )

    def _are_of(self, index: int, keys: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Which of these keys of stacks are of a target, as far as the stacks were read."""
        import numpy as np

        return np.isin(keys, np.array(self.stacks.keys_of(index), np.uint64))

    def _weighted(self, kind: Waiting, lengths: WaitHistogram) -> WaitHistogram:
        """The lengths, with how many events each recorded one stands for by Go's sampling."""
        rate_ns, weight = self._config.block_rate_ns, 1.0
        if not lengths:
            return lengths
        if kind == "mutex":
            weight = float(self._config.mutex_fraction)
        elif rate_ns > 1:
            of_each = ((count, rate_ns / SCALE.middle_ns(at)) for at, count in lengths.rows())
            weight = sum(count * max(1.0, each) for count, each in of_each) / lengths.total
        return lengths if weight == 1 else replace(lengths, weight=weight)

    def holds(self) -> dict[int, dict[int, Hold]]:
        """How long locks were held, by target and semaphore; {} without by_lock."""
        by_target: dict[int, dict[int, Hold]] = {}
        if not self._config.by_lock:
            return by_target
        keys, locks = self._program.maps["locks"].rows()
        has_holds = locks["holds"] > 0
        by_length = self._lengths.read() if has_holds.any() else NO_STACKS
        for key, lock in zip(keys[has_holds].tolist(), locks[has_holds], strict=True):
            target, sema = divmod(key, 1 << _TARGET_SHIFT)
            lengths = by_length.of(hold_key(key)).lengths
            if sema % _ALIGNMENT == _TRACKED_QUEUE:
                sema -= _TRACKED_QUEUE
                lengths = lengths.standing_for(TRACKING_PERIOD * lengths.total)
            hold = Hold(int(lock["holds"]), int(lock["held_ns"]), lengths)
            holds = by_target.setdefault(target, {})
            holds[sema] = holds.get(sema, Hold()).plus(hold)
        return by_target

    def last_waits(self) -> dict[int, dict[int, LastWait]]:
        """The last wait of each goroutine, by target and address of the runtime.g."""
        by_target: dict[int, dict[int, LastWait]] = {}
        for key, wait in zip(*self._program.maps["waits"].rows(), strict=True):
            target, g = divmod(int(key), 1 << _TARGET_SHIFT)
            state = int(wait["state"])
            woken_ns = int(wait["since_ns"]) if state == _WOKEN else 0
            last_wait = LastWait(
                int(wait["start_ns"]), state == _WAITS, woken_ns, bool(wait["is_seeded"])
            )
            by_target.setdefault(target, {})[g] = last_wait
        return by_target

    def take(self, index: int) -> dict[KnownStack, StackSums]:
        """What was added to the sums of a target's stacks since the last take()."""
        added: dict[KnownStack, StackSums] = {}
        tracked = self._tracked_rows()
        read = self._read(index)
        spreads = self._spreads(index, *tracked) if tracked else {}
        for taken, sums in ((self._taken, read.stacks), (self._taken_pairs, read.pairs)):
            for key, stack, count, delay_ns, lengths in sums:
                now = StackSums(count / (1 << COUNT_SHIFT), delay_ns, lengths=lengths)
                if taken is self._taken and key in spreads:
                    in_queue = read.by_length.of(run_queue_key(key)).lengths
                    now += replace(spreads[key], runnable_lengths=in_queue)
                if (more := now - taken.get(key, _NONE)) != _NONE:
                    taken[key] = now
                    added[stack] = added.get(stack, _NONE) + more
        return added

    def _tracked_rows(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        """The rows with more of the tracked waits; None without any."""
        if not (self._config.tracks_waits and self._config.has_waiters):
            return None
        return self._program.maps["spreads"].rows()

    def _spreads(
        self, index: int, keys: npt.NDArray[Any], rows: npt.NDArray[Any]
    ) -> dict[int, StackSums]:
        """More of the tracked waits of a target, by key of their stacks."""
        is_ours = self._are_of(index, keys)
        keys, rows = keys[is_ours], rows[is_ours]
        squares = rows["squares"].astype(float) * (1 << 2 * _DELAY_SHIFT)
        squares += rows["long_squares"].astype(float) * (1 << 2 * _LONG_SHIFT)
        columns = [rows[name].tolist() for name in _SPREAD]
        sums = zip(keys.tolist(), *columns, squares.tolist(), strict=True)
        return {key: StackSums(0.0, 0.0, *values) for key, *values in sums}

    def uncharged(self, index: int, end_ns: int) -> dict[int, float]:
        """By semaphore, the waiting until then (CLOCK_MONOTONIC) whose release was not seen, in ns.

        Of tracked waiters alone, times eight.
        """
        if not self._config.mutex:
            return {}
        keys, locks = self._program.maps["locks"].rows()
        is_ours = (keys >> _TARGET_SHIFT == index) & (keys % _ALIGNMENT == _TRACKED_QUEUE)
        waiting_ns = {}
        for key, lock in zip(keys[is_ours].tolist(), locks[is_ours], strict=True):
            ns = _left_in_queue_ns(int(lock["queue"]), int(lock["charged"]), end_ns)
            sema = key % (1 << _TARGET_SHIFT) - _TRACKED_QUEUE
            waiting_ns[sema] = float(TRACKING_PERIOD * (ns + int(lock["missed_ns"])))
        return waiting_ns

    def forget(self, index: int) -> None:
        """Delete all rows of a target without attached probes."""
        self.forget_waits(index)
        if self._config.tracks_waits:
            self._forget(["tracked"], index)
        forgotten = self.stacks.forget(index)
        pairs = self._pairs.forget(forgotten) if self._pairs else []
        self._lengths.forget([*forgotten, *map(run_queue_key, forgotten), *pairs])
        for key in forgotten:
            self._taken.pop(key, None)
        for key in pairs:
            self._taken_pairs.pop(key, None)

    def forget_waits(self, index: int) -> None:
        """Delete what is known of waits in progress: since then no probe saw their wakes."""
        tables = ["waits"]
        tables += ["counted_wakers"] if "counted_wakers" in self._program.maps else []
        tables += ["sleepers"] if self._config.runtime_locks else []
        self._forget(tables, index)
        self.forget_queues(index)

    def forget_queues(self, index: int) -> None:
        """Delete the queues of locks, and for how long locks were held."""
        if self._config.by_lock:
            keys, locks = self._program.maps["locks"].rows()
            held = keys[(keys >> _TARGET_SHIFT == index) & (locks["holds"] > 0)]
            if len(held):
                self._lengths.forget([*map(hold_key, held.tolist())])
        self._forget(["locks"] if self._config.mutex or self._config.by_lock else [], index)

    def _forget(self, tables: Sequence[str], index: int) -> None:
        for table in tables:
            keys, _ = self._program.maps[table].rows()
            self._program.maps[table].delete(keys[keys >> _TARGET_SHIFT == index])


def _left_in_queue_ns(queue: int, charged: int, end_ns: int) -> int:
    """The waiting time until `end_ns` that no release was charged: charge() of locks.h."""
    modulus = 1 << 64 - _WAITERS_BITS
    waiters = queue & ((1 << _WAITERS_BITS) - 1)
    waited = waiters * (end_ns >> _UNIT_SHIFT) - (queue >> _WAITERS_BITS)
    units = (waited - charged) % modulus
    return units << _UNIT_SHIFT if units < modulus // 2 else 0
