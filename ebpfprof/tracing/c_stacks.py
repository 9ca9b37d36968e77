"""Stacks of C code in which threads sleep: unwound here where the kernel lacks the rules."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ebpfprof.process.mappings import MappedObjects
from ebpfprof.profilers.cpu.learner import Learner
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.kernel.program import BpfProgram
    from ebpfprof.profilers.cpu.sample_table import CpuStack

_REFRESH_S: Final = 1.0
_KERNEL: Final = 1 << 63
_MOST: Final = 1 << 15  # stacks, as the kernel has room for


class CStacks(Closing):
    """Of one program, which was loaded: unwinds, and gives the kernel the rules for the next ones.

    A stack that was handed over has a key of its own in the table of stacks.
    """

    def __init__(self, program: BpfProgram, go: GoTarget) -> None:
        self.objects = MappedObjects(go.target)
        """What is mapped in it."""
        self._learner = Learner(program, self)
        self._learner.open(0, self.objects, go)
        self._found: dict[int, tuple[int, ...]] = {}
        self._refreshed_s = time.monotonic()
        self.failure: Exception | None = None
        """The error because of which stacks are incomplete; None without one."""

    def unwind(self) -> None:
        """Unwind what came since the last call; errors are kept in `failure`."""
        is_due = time.monotonic() >= self._refreshed_s + _REFRESH_S
        self._learn(refreshes=is_due)

    def _learn(self, *, refreshes: bool) -> None:
        try:
            self._learner.learn()
            if refreshes and self._learner.has_waiting:
                self._refreshed_s = time.monotonic()
                self._learner.refresh()
        except Exception as error:  # the rest of the trace matters more
            self.failure = self.failure or error
        self.failure = self.failure or self._learner.failure

    def add(self, process: int, stack: CpuStack, labels: int, count: int) -> None:
        """Take an unwound stack; `labels` is its key in the table of stacks."""
        del process, count
        if len(self._found) < _MOST:
            self._found[labels] = stack.pcs

    def completed(self, stacks: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """The stacks, of which some lack callers in C code, with these; unwinds what waits."""
        self._learn(refreshes=True)
        return {key: self._whole(pcs, self._found.get(key)) for key, pcs in stacks.items()}

    def close(self) -> None:
        """Close the files of what is mapped."""
        self.objects.close()

    @staticmethod
    def _whole(pcs: tuple[int, ...], of_c: tuple[int, ...] | None) -> tuple[int, ...]:
        if of_c is None:
            return pcs
        kernel = sum(pc >= _KERNEL for pc in pcs)
        known = next(
            (n for n, (one, two) in enumerate(zip(pcs[kernel:], of_c, strict=False)) if one != two),
            min(len(pcs) - kernel, len(of_c)),
        )
        return (*pcs[:kernel], *of_c, *pcs[kernel + known :])
