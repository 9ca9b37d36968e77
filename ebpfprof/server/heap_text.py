"""A memory profile as the text that net/http/pprof answers with ?debug=1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.export.go_quotes import shortened
from ebpfprof.server.pprof_text import aligned
from symbolizer.frames import FuncRole

if TYPE_CHECKING:
    from ebpfprof.goruntime.heap.heap_buckets import HeapCounts
    from symbolizer import GoBinary


def text(counts: HeapCounts, binary: GoBinary, load_bias: int) -> str:
    """The buckets, the largest in use first, as runtime/pprof/pprof.go, writeHeapInternal, does.

    Counts are of sampled objects, not scaled. Raises GoTableError.
    """
    columns = (counts.sizes, counts.allocs, counts.allocs - counts.frees)
    rows = list(zip(counts.stacks, *(column.tolist() for column in columns), strict=True))
    rows.sort(key=lambda row: -row[3] * row[1])
    in_use, in_use_bytes = sum(row[3] for row in rows), sum(row[3] * row[1] for row in rows)
    all_of, all_bytes = sum(row[2] for row in rows), sum(row[2] * row[1] for row in rows)
    all_bytes += all_bytes == in_use_bytes and binary.layout.tracebacks.unequal_totals
    lines = [
        f"heap profile: {in_use}: {in_use_bytes} [{all_of}: {all_bytes}] @ heap/{2 * counts.rate}"
    ]
    frames = _Frames(binary, load_bias)
    for stack, size, allocs, used in rows:
        pcs = "".join(f" {pc:#x}" for pc in stack)
        lines.append(f"{used}: {used * size} [{allocs}: {allocs * size}] @{pcs}")
        lines += [*aligned(frames.rows(stack)), ""]
    return "\n".join(lines) + "\n"


class _Frames:
    """Rows of frames, each address looked up once."""

    def __init__(self, binary: GoBinary, load_bias: int) -> None:
        self._binary, self._bias = binary, load_bias
        self._rules = binary.layout.tracebacks
        self._known: dict[int, tuple[str, bool, list[str]]] = {}

    def rows(self, stack: Sequence[int]) -> list[list[str]]:
        """A row for each call, but for the runtime's innermost ones, unless there are no others."""
        frames = [self._at(pc) for pc in stack]
        calls = [(name, row) for name, is_outermost, row in frames if not is_outermost]
        hidden = 0
        while hidden < len(calls) and calls[hidden][0].startswith(self._rules.hidden_prefixes):
            hidden += 1
        return [row for _, row in calls[hidden:] or calls]

    def _at(self, pc: int) -> tuple[str, bool, list[str]]:
        """The function's name, whether it is runtime.goexit, and the row."""
        if pc not in self._known:
            linked = pc - 1 - self._bias
            frames, function = self._binary.frames(linked), self._binary.function_at(linked)
            row, name, is_outermost = ["#", f"{pc - 1:#x}"], "", False
            if frames and function:
                frame = frames[0]
                name, is_outermost = frame.function, frame.role is FuncRole.GOEXIT
                shown = printable(shortened(name, self._rules.shortened_type_arguments))
                row.append(f"{shown}+{linked - function.entry:#x}")
                row.append(f"{printable(frame.file)}:{frame.line}")
            self._known[pc] = name, is_outermost, row
        return self._known[pc]
