"""Reads the maps of the program of allocations: sums, stacks, and objects that were reported."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.kernel import c_facts

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.kernel.program import BpfProgram

_BIRTH: Final = c_facts.struct("heap/allocations.bpf.c", "born")
_MOST_BIRTHS: Final = 1 << 20


class AllocatingStack(NamedTuple):
    """A stack that allocates objects of `size_bytes`: runtime addresses, innermost first.

    All but the first are return addresses; that lies behind the gate, as they lie behind calls.
    """

    return_pcs: tuple[int, ...]
    size_bytes: int


class AllocationTables:
    """The maps; stacks are read once each, by key."""

    def __init__(self, program: BpfProgram) -> None:
        """`program` need not be loaded yet."""
        self._program = program
        self._stacks: dict[int, tuple[int, AllocatingStack]] = {}

    def counts(self, index: int) -> Counter[AllocatingStack]:
        """How many objects of a target were sampled since it was opened, by stack and size."""
        keys, totals = self._program.maps["totals"].rows()
        counts = dict(zip(keys.tolist(), totals["count"].tolist(), strict=True))
        self._read(set(counts))
        by_stack: Counter[AllocatingStack] = Counter()
        for key, count in counts.items():
            owner, stack = self._stacks.get(key, (-1, None))
            if owner == index and stack is not None and count:
                by_stack[stack] += count
        return by_stack

    def stack(self, key: int) -> AllocatingStack | None:
        """The stack with the key in a row of births(); None if it was lost."""
        if key not in self._stacks:
            self._read({key})
        return self._stacks.get(key, (-1, None))[1]

    def births(self) -> npt.NDArray[Any]:
        """The sampled objects since the last call, oldest first: see struct born in the C."""
        records = self._program.maps["births"].reader().consume(_MOST_BIRTHS)
        return np.frombuffer(b"".join(records), _BIRTH)

    def forget(self, index: int) -> None:
        """Delete all data of a target without attached probes."""
        for keys, stacks in self._program.maps["stacks"].batches():
            ours = keys[stacks["group"]["target"] == index]
            for table in ("totals", "stacks"):
                self._program.maps[table].delete(ours)
        self._stacks = {k: known for k, known in dict(self._stacks).items() if known[0] != index}

    def _read(self, wanted: set[int]) -> None:
        if wanted <= self._stacks.keys():
            return
        for keys, stacks in self._program.maps["stacks"].batches():
            groups = stacks["group"]
            rows = zip(
                *(keys.tolist(), stacks["depth"].tolist(), stacks["pcs"]),
                *(groups["target"].tolist(), groups["sema"].tolist()),  # of these, the size
                strict=True,
            )
            for key, depth, pcs, target, size in rows:
                if depth and key not in self._stacks:
                    stack = AllocatingStack(tuple(pcs[:depth].tolist()), size)
                    self._stacks[key] = target, stack
