"""Reads CPU samples from the kernel's table, and adds them up while somebody needs the sums.

A program on many processors soon has more distinct stacks than fit into the table: each interrupted
address makes another one. So we empty the table whenever a quarter of it may be full. Rows belong
to turns, even and odd ones. Once the kernel writes rows of the next turn, the rows of the last turn
no longer change, and we can move them out without missing a sample. The same holds for the sets of
labels that they refer to: a program may have a set for each request.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import numpy as np

from ebpfprof.profilers import labels
from ebpfprof.profilers.cpu.unwinder import Ending

if TYPE_CHECKING:
    from ebpfprof.kernel.program import BpfProgram
    from ebpfprof.profile.model import Label

LEAST_ROWS: Final = 1 << 12
_MOST_ROWS: Final = 1 << 15  # about 1.6 KB each
ROOM_S: Final = 4
# Of one SampleSums: about 0.3 KB each, and 1 KB while we write a profile.
MAX_STACKS = 1 << 17


@dataclass(frozen=True, slots=True)
class CpuStack:
    """One stack of one target. Addresses are return addresses, innermost first.

    For interrupted code, such as the innermost frame, it is the interrupted address plus 1, as in
    Go. `labels` are those of the goroutine.
    """

    kernel_pcs: tuple[int, ...]
    pcs: tuple[int, ...]
    ending: Ending
    labels: tuple[Label, ...] = ()


class SampleSums:
    """A moment: the samples of a target that come after it add up while somebody keeps it."""

    def __init__(self, before: Counter[CpuStack]) -> None:
        """`before` is what the kernel's table held then."""
        self.taken_out: Counter[CpuStack] = Counter()
        """What came out of the table since."""
        self.before = before

    def __sub__(self, earlier: SampleSums) -> Counter[CpuStack]:
        """The samples of each stack since an earlier moment.

        What has come since this one is in both sums.
        """
        counts = Counter(earlier.taken_out)
        counts.update(self.before)
        counts.subtract(earlier.before)
        counts.subtract(self.taken_out)
        return +counts


def rows_for(hz: int, processors: int) -> int:
    """The number of rows of the table for `hz` samples a second on each processor.

    make_room() runs several times a second; the other rows are for times when we wait for a CPU.
    """
    return min(_MOST_ROWS, max(LEAST_ROWS, ROOM_S * hz * processors))


class SampleTable:
    """The maps `samples`, `turns` and `filled` of bpf/cpu/cpu.bpf.c, and `label_sets`."""

    def __init__(self, program: BpfProgram, rows: int, *, has_labels: bool) -> None:
        """`rows` is the size of `samples`."""
        self._program = program
        self._rows = rows
        self._has_labels = has_labels
        self._sums = defaultdict[int, WeakSet[SampleSums]](WeakSet)  # by target
        self._is_odd = 0
        self._is_emptying = False
        self._filled_before = self._sets_before = 0
        self._known: dict[int, tuple[int, CpuStack]] = {}  # targets and stacks by key
        self._pcs: dict[int, int] = {}
        self._label_sets: dict[int, tuple[Label, ...]] = {}
        self.lost = Counter[int]()
        """How many samples did not fit into some SampleSums, by target."""

    def sums(self, target: int) -> SampleSums:
        """Now. Samples of the target add up from here on for as long as the caller keeps it."""
        sums = SampleSums(self._in_table(target))
        self._sums[target].add(sums)
        return sums

    def add(self, target: int, stack: CpuStack, labels: int, count: int) -> None:
        """Add samples that we unwound ourselves; `labels` is a key of label_sets."""
        kernel_pcs, pcs = self._shared(stack.kernel_pcs), self._shared(stack.pcs)
        sampled = CpuStack(kernel_pcs, pcs, stack.ending, self._labels(labels))
        self._add(target, sampled, count)

    def make_room(self) -> None:
        """Empty the table if it or the table of label sets may be full soon.

        Call it some times a second, with longer intervals than an interrupt may last: then no
        processor still writes rows of the last turn.
        """
        if self._is_emptying:
            self._is_emptying = False
            self._empty(self._is_odd ^ 1)
        filled = self._program.maps["filled"].sum_at(0)["rows"]
        sets = self._program.maps["sets_made"].sum_at(0)["rows"] if self._has_labels else 0
        if (
            filled - self._filled_before >= self._rows // 4
            or sets - self._sets_before >= labels.MAX_LABEL_SETS // 4
        ):
            self._filled_before, self._sets_before = filled, sets
            self._is_odd ^= 1
            self._program.maps["turns"].set_struct(0, {"is_odd": self._is_odd})
            self._is_emptying = True

    def forget(self, target: int) -> None:
        """Delete all rows of a target that is not sampled; its sums stay as they are."""
        for keys, rows in self._program.maps["samples"].batches():
            self._program.maps["samples"].delete(keys[rows["process"] == target])
        self._known = {key: known for key, known in self._known.items() if known[0] != target}
        self._sums.pop(target, None)

    def _empty(self, is_odd: int) -> None:
        """Move the rows of a turn out; keep only the stacks that the table has now."""
        taken, seen = [], {}
        for key, target, stack, count in self._all():
            seen[key >> 1] = target, stack
            if key & 1 == is_odd:
                self._add(target, stack, count)
                taken.append(key)
        self._known = seen
        self._pcs = {pc: pc for _, stack in seen.values() for pc in stack.kernel_pcs + stack.pcs}
        key_type, _ = self._program.maps["samples"].types
        self._program.maps["samples"].delete(np.array(taken, key_type))
        if self._has_labels:
            # Partial samples may refer to these sets: keep them until next time.
            self._label_sets = self._read_label_sets()
            labels.delete_sets(self._program, lambda owners: owners & 1 == is_odd)

    def _add(self, target: int, stack: CpuStack, count: int) -> None:
        for sums in self._sums[target]:
            if stack in sums.taken_out or len(sums.taken_out) < MAX_STACKS:
                sums.taken_out[stack] += count
            else:
                self.lost[target] += count

    def _in_table(self, target: int) -> Counter[CpuStack]:
        counts = Counter[CpuStack]()
        for _, _, stack, count in self._all(target):
            counts[stack] += count
        return counts

    def _all(self, target: int | None = None) -> Iterator[tuple[int, int, CpuStack, int]]:
        """All rows, or those of a target: key, target, stack, count."""
        for keys, rows in self._program.maps["samples"].batches():
            if target is not None:
                is_ours = rows["process"] == target
                keys, rows = keys[is_ours], rows[is_ours]
            for key, count, row in zip(keys.tolist(), rows["count"].tolist(), rows, strict=True):
                known = self._known.get(key >> 1)
                if known is None:
                    stack = CpuStack(
                        self._shared(row["kernel_pcs"][: row["kernel_depth"]].tolist()),
                        self._shared(row["user"]["pcs"][: row["user"]["depth"]].tolist()),
                        Ending(int(row["ending"])),
                        self._labels(int(row["labels"])),
                    )
                    known = self._known[key >> 1] = int(row["process"]), stack
                yield (key, *known, count)

    def _shared(self, pcs: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        """A copy that shares one object per address: else stacks take four times the memory."""
        return tuple(map(self._pcs.setdefault, pcs, pcs))

    def _labels(self, key: int) -> tuple[Label, ...]:
        if key and self._has_labels and key not in self._label_sets:
            self._label_sets |= self._read_label_sets()
        return self._label_sets.get(key, ())

    def _read_label_sets(self) -> dict[int, tuple[Label, ...]]:
        return labels.label_sets(*self._program.maps["label_sets"].rows())
