"""Reads the stacks that the program of waits has stored, each once, by key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.profile.model import Label
from ebpfprof.profilers.labels import delete_sets, label_sets
from ebpfprof.profilers.waits.rows import KnownStack, Waiting

_KINDS: dict[int, Waiting] = {
    c_facts.number("probes/totals.h", "KIND_BLOCK"): "block",
    c_facts.number("probes/totals.h", "KIND_MUTEX"): "mutex",
    c_facts.number("probes/totals.h", "KIND_THREAD"): "thread",
}


_PARK_FRAMES: Final = 3  # gopark and goparkunlock may be inlined or not
OTHER_LOCKS: Final = c_facts.number("probes/totals.h", "OTHER_LOCKS")
"""Stands for a semaphore where there is no room to tell one more lock apart."""


class StackTable:
    """The map `stacks`, and `label_sets` if labels of goroutines are recorded."""

    def __init__(self, program: BpfProgram, *, has_labels: bool, by_lock: bool = False) -> None:
        """`program` need not be loaded yet."""
        self._program = program
        self._most_labelled = self._most_locked = 0
        self._has_labels, self._by_lock = has_labels, by_lock
        self._known: dict[int, KnownStack] = {}
        self._keys_of = defaultdict[int, list[int]](list)  # of known stacks, by target
        self.parks: dict[int, frozenset[int]] = {}
        """By target, the return addresses of the calls in which goroutines park."""
        self._return_pcs: dict[int, int] = {}

    def keep_labelled(self, count: int) -> None:
        """Let `count` more stacks have labels; beyond that, new stacks are stored without."""
        if self._has_labels:
            self._most_labelled += count
            self._program.maps["labelled_most"].set_struct(0, {"stacks": self._most_labelled})

    def keep_locked(self, count: int) -> None:
        """Let `count` more stacks be of a lock; beyond that, new stacks are of OTHER_LOCKS."""
        if self._by_lock:
            self._most_locked += count
            self._program.maps["locked_most"].set_struct(0, {"stacks": self._most_locked})

    def get(self, key: int) -> KnownStack | None:
        """A stack of the last read(); None if it was missing or incomplete then."""
        return self._known.get(key)

    def keys_of(self, target: int) -> Sequence[int]:
        """The keys of the stacks of a target as of the last read()."""
        return self._keys_of.get(target, ())

    def read(self, wanted: set[int]) -> None:
        """Read new stacks, if one of `wanted` is new. A stack never changes once written."""
        if wanted.difference(self._known) <= {0}:
            return
        sets = self._label_sets()
        for keys, stacks in self._program.maps["stacks"].batches():
            groups = stacks["group"]
            columns = zip(
                keys.tolist(),
                stacks["depth"].tolist(),
                stacks["pcs"],
                *(groups[name].tolist() for name in ("target", "kind", "sema", "labels")),
                strict=True,
            )
            for key, depth, pcs, target, kind, sema, labels_key in columns:
                if depth and key not in self._known:
                    self._keys_of[target].append(key)
                    self._known[key] = KnownStack(
                        target,
                        _KINDS[kind],
                        sema,
                        self._shared(self._from_park(pcs[:depth].tolist(), target)),
                        sets.get(labels_key, ()),
                    )

    def forget(self, target: int) -> list[int]:
        """Delete the stacks, sums and labels of a target from the maps; return the stacks' keys."""
        of_target = [
            (
                keys[is_ours],
                int((stacks["group"]["labels"][is_ours] != 0).sum()),
                int((stacks["group"]["sema"][is_ours] > OTHER_LOCKS).sum()),
            )
            for keys, stacks in self._program.maps["stacks"].batches()
            for is_ours in [stacks["group"]["target"] == target]
        ]
        forgotten = []
        for ours, labelled, locked in of_target:
            for table in {"totals", "stacks", "spreads"} & self._program.maps.keys():
                self._program.maps[table].delete(ours)
            forgotten += ours.tolist()
            self.keep_labelled(labelled)
            self.keep_locked(locked)
        if self._has_labels:
            delete_sets(self._program, lambda owners: owners >> 1 == target)
        for key in forgotten:
            self._known.pop(key, None)
        self._keys_of.pop(target, None)
        self._return_pcs.clear()  # drops those of the target; others come back with read()
        return forgotten

    def _from_park(self, pcs: list[int], target: int) -> list[int]:
        """A stack without what is inside of the park: one wait in eight has that, too."""
        parks = self.parks.get(target, ())
        return pcs[next((n for n, pc in enumerate(pcs[:_PARK_FRAMES]) if pc in parks), 0) :]

    def _shared(self, pcs: list[int]) -> tuple[int, ...]:
        """A tuple that shares one object per address: 20,000 deep stacks would take 100 MB."""
        known = self._return_pcs
        try:
            # The fastest way; with a single key, itemgetter returns no tuple.
            return itemgetter(*pcs)(known) if len(pcs) > 1 else (known[pcs[0]],)
        except KeyError:
            return tuple(map(known.setdefault, pcs, pcs))

    def _label_sets(self) -> dict[int, tuple[Label, ...]]:
        if not self._has_labels:
            return {}
        return label_sets(*self._program.maps["label_sets"].rows())
