"""Reads the sums by pair, a stack that waited and one that woke it (bpf/waits/wakers.h)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.profilers.waits.rows import NO_WAKER, KnownStack, Waker

if TYPE_CHECKING:
    from ebpfprof.kernel.program import BpfProgram
    from ebpfprof.profilers.waits.stack_table import StackTable

_UNKNOWN: Final = 0


class PairTable:
    """The map `pairs`; its stacks are those of `stacks`."""

    def __init__(self, program: BpfProgram, stacks: StackTable) -> None:
        """`program` need not be loaded yet."""
        self._program, self._stacks = program, stacks
        self._known: dict[int, KnownStack] = {}

    def sums(self) -> Iterator[tuple[int, KnownStack, int, int]]:
        """The key, the pair, the count in the kernel's unit and the delay (ns) of each pair.

        Without what the map `lengths` has. Those that the kernel is writing are missing: the next
        reading has them.
        """
        keys, pairs = self._program.maps["pairs"].rows()
        columns = [pairs[name].tolist() for name in ("waiter", "waker", "count", "delay_ns")]
        self._stacks.read({*columns[0], *columns[1]} - {_UNKNOWN})
        for key, waiter, waker, count, delay_ns in zip(keys.tolist(), *columns, strict=True):
            pair = self._known.get(key) or self._pair(key, waiter, waker)
            if pair:
                yield key, pair, count, delay_ns

    def forget(self, stacks: Sequence[int]) -> list[int]:
        """Delete the pairs of waiting stacks with these keys; return the pairs' keys."""
        import numpy as np

        keys, pairs = self._program.maps["pairs"].rows()
        ours = keys[np.isin(pairs["waiter"], np.array(stacks, np.uint64))]
        self._program.maps["pairs"].delete(ours)
        forgotten: list[int] = ours.tolist()
        for key in forgotten:
            self._known.pop(key, None)
        return forgotten

    def _pair(self, key: int, waiter: int, waker: int) -> KnownStack | None:
        waiting, waking = self._stacks.get(waiter), self._stacks.get(waker)
        if waiting is None or (waking is None and waker != _UNKNOWN):
            return None
        by = NO_WAKER
        if waking:
            by = Waker("thread" if waking.kind == "thread" else "wakers", waking.return_pcs)
        return self._known.setdefault(key, waiting._replace(kind="wakers", waker=by))
