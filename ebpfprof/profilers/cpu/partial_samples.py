"""Samples that the kernel could not unwind to their end, out of its ring buffer: finished here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ebpfprof.kernel import c_facts
from ebpfprof.profilers.cpu.unwinder import (
    MAX_DEPTH,
    Code,
    CodeLookup,
    Copies,
    Cursor,
    Ending,
    GoState,
    ProcessRules,
    interrupted_at,
    unwind,
)
from symbolizer.unwind.go import GoUnwind

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.mappings import MappedObjects

LARGE_BYTES: Final = 70 << 10
"""What a sample takes in the ring buffer with the most of its stack; with little, a tenth."""
_MIN_RING_BYTES = 1 << 22
_MAX_RING_BYTES = 1 << 24  # some 240 of the largest size
_UNFINISHED = c_facts.struct("cpu/cpu.bpf.c", "unfinished", {"MAX_DEPTH": MAX_DEPTH})


def ring_bytes_for(samples: float) -> int:
    """How large the ring buffer is if so many samples may come from one look to the next.

    A power of two, with room for twice as many of the largest size, within bounds.
    """
    least = 2 * samples * LARGE_BYTES
    return min(_MAX_RING_BYTES, max(_MIN_RING_BYTES, 1 << math.ceil(math.log2(least))))


class MappedCode(CodeLookup):
    """What is mapped in a target, with Go's own tables for Go's code."""

    def __init__(self, objects: MappedObjects, go: GoTarget | None) -> None:
        self._objects = objects
        self._go_code = Code(GoUnwind(go.binary), go.load_bias) if go else None
        self._go_text = (
            range(go.binary.text_start + go.load_bias, go.binary.text_end + go.load_bias)
            if go
            else range(0)
        )

    def code_at(self, address: int) -> Code | None:
        """Go's tables for Go's own code, else those of the file that is mapped there."""
        if address in self._go_text:
            return self._go_code
        mapped = self._objects.at(address)
        table = mapped.unwind_table() if mapped else None
        return Code(table, mapped.bias) if mapped and table else None

    def is_code(self, address: int) -> bool:
        """Whether something executable is mapped there."""
        return self._objects.at(address) is not None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A sample as far as the kernel came, and what the rest of the walk needs.

    `process` is the number of its target, `labels` that of its set of labels; it stands for
    `count` samples. Addresses are as in collectors.sampletable.CpuStack.
    """

    process: int
    labels: int
    count: int
    kernel_pcs: tuple[int, ...]
    pcs: tuple[int, ...]
    at: Cursor
    go: GoState
    copies: Copies
    behind_breakpoint: bool

    @classmethod
    def parse(cls, packed: bytes) -> Self:
        """Take a record of the ring buffer apart."""
        record: Any = np.frombuffer(packed, _UNFINISHED, 1)[0]
        sample, at, go = record["sample"], record["at"], record["go"]
        user = sample["user"]
        copied = packed[_UNFINISHED.itemsize :]
        half = len(copied) // 2
        halves = copied[:half], copied[half:]
        copies = Copies([])
        for start, missing, data in zip(record["stacks"], record["missing"], halves, strict=True):
            copies.add(int(start), data, int(missing))
        return cls(
            int(sample["process"]),
            int(sample["labels"]),
            int(sample["count"]),
            tuple(sample["kernel_pcs"][: sample["kernel_depth"]].tolist()),
            tuple(user["pcs"][: user["depth"]].tolist()),
            Cursor(int(at["pc"]), int(at["sp"]), int(at["bp"]), bool(at["is_exact"])),
            GoState(**{name: int(go[name]) for name in go.dtype.names}),
            copies,
            bool(record["behind_breakpoint"]),
        )

    def finish(self, rules: ProcessRules) -> tuple[tuple[int, ...], Ending]:
        """The whole stack, and how the walk ended. To be called once: it uses up the cursor."""
        if self.behind_breakpoint:
            self.at.pc = interrupted_at(self.at.pc, rules)
        pcs, ending = unwind(self.at, self.go, self.copies, rules, self.pcs)
        if ending is Ending.UNREADABLE:
            ending = Ending.UNLEARNED  # the stack may be larger than its copy
        return tuple(pcs), ending
