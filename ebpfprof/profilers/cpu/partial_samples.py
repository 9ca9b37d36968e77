"""Samples that the kernel could not unwind to their end: its ring buffer has copies of stacks."""

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
    Cursor,
    Ending,
    GoState,
    ProcessRules,
    StackPieces,
    interrupted_at,
    is_push,
    unwind,
)
from symbolizer.unwind.go import GoUnwind

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.mappings import MappedObjects

LARGE_BYTES: Final = 70 << 10
"""The size of a sample in the ring buffer with a large stack; a small one takes a tenth.

Those of the few goroutines with more than 32 KiB of stack take four times as much, those in
handlers of signals half as much again.
"""
_MIN_RING_BYTES = 1 << 22
_MAX_RING_BYTES = 1 << 24  # about 240 of the largest size
_UNFINISHED = c_facts.struct("cpu/partial_samples.h", "unfinished", {"MAX_DEPTH": MAX_DEPTH})


def ring_bytes_for(samples: float) -> int:
    """The size of the ring buffer for that many samples between two polls.

    A power of two within bounds, which holds twice as many samples of the largest size.
    """
    least = 2 * samples * LARGE_BYTES
    return min(_MAX_RING_BYTES, max(_MIN_RING_BYTES, 1 << math.ceil(math.log2(least))))


class MappedCode(CodeLookup):
    """The code that is mapped in a target, with Go's own tables for Go's code."""

    def __init__(self, objects: MappedObjects, go: GoTarget | None) -> None:
        self._objects = objects
        self._go_code = Code(GoUnwind(go.binary), go.load_bias) if go else None
        self._go_text = (
            range(go.binary.text_start + go.load_bias, go.binary.text_end + go.load_bias)
            if go
            else range(0)
        )

    def code_at(self, address: int) -> Code | None:
        """Go's tables for Go's own code, else the tables of the mapped file."""
        if address in self._go_text:
            return self._go_code
        mapped = self._objects.at(address)
        table = mapped.unwind_table() if mapped else None
        return Code(table, mapped.bias) if mapped and table else None

    def is_code(self, address: int) -> bool:
        """Whether an executable mapping has the address."""
        return self._objects.at(address) is not None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A sample with the stack as far as the kernel unwound it, and data to unwind the rest.

    `process` is the number of its target, `labels` a key of label_sets; it stands for `count`
    samples. Addresses are as in sample_table.CpuStack.
    """

    process: int
    labels: int
    count: int
    kernel_pcs: tuple[int, ...]
    pcs: tuple[int, ...]
    at: Cursor
    go: GoState
    copies: StackPieces
    behind_breakpoint: bool
    at_breakpoint: bool

    @classmethod
    def parse(cls, packed: bytes) -> Self:
        """Parse a record of the ring buffer."""
        record: Any = np.frombuffer(packed, _UNFINISHED, 1)[0]
        sample, at, go = record["sample"], record["at"], record["go"]
        user = sample["user"]
        copied = packed[_UNFINISHED.itemsize :]
        copies = StackPieces([])
        for start, missing, parts, part_bytes in record["copies"].tolist():
            size_bytes = parts * part_bytes
            copies.add(start, copied[:size_bytes], missing, part_bytes)
            copied = copied[size_bytes:]
        return cls(
            int(sample["process"]),
            int(sample["labels"]),
            int(sample["count"]),
            tuple(sample["kernel_pcs"][: sample["kernel_depth"]].tolist()),
            tuple(user["pcs"][: user["depth"]].tolist()),
            Cursor(
                int(at["pc"]), int(at["sp"]), int(at["bp"]), bool(at["is_exact"]), int(at["r12"])
            ),
            GoState(**{name: int(go[name]) for name in go.dtype.names}),
            copies,
            bool(record["behind_breakpoint"]),
            bool(record["at_breakpoint"]),
        )

    def finish(self, rules: ProcessRules) -> tuple[tuple[int, ...], Ending]:
        """Unwind the rest: the whole stack, and how the walk ended. Call it once: it moves `at`."""
        if self.behind_breakpoint or self.at_breakpoint:
            self.leave_breakpoint(rules)
        pcs, ending = unwind(self.at, self.go, self.copies, rules, self.pcs)
        if ending is Ending.UNREADABLE:
            ending = Ending.UNLEARNED  # the stack may be larger than its copy
        return tuple(pcs), ending

    def leave_breakpoint(self, rules: ProcessRules) -> None:
        """Move `at` to where the thread's own code continues: user_registers() of cpu.bpf.c."""
        at = self.at
        has_pushed = self.copies.word(at.sp) == at.bp
        has_pushed = has_pushed and is_push(at.pc - self.behind_breakpoint, rules)
        if self.at_breakpoint:
            at.sp += 8 if has_pushed else 0
        elif not has_pushed:
            at.pc = interrupted_at(at.pc, rules)
