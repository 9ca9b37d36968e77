"""A goroutine profile as the text that net/http/pprof answers with ?debug=1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.export.go_quotes import shortened
from ebpfprof.export.goroutine_counts import GOEXIT
from ebpfprof.server.pprof_text import aligned

if TYPE_CHECKING:
    from ebpfprof.export.goroutine_counts import GoroutineCount, StackedCall
    from symbolizer.go.runtime_layout import TracebackRules


def text(counts: Sequence[GoroutineCount], rules: TracebackRules, most: int) -> str:
    """The goroutines by stack and labels, at most `most` frames of each stack.

    As runtime/pprof/pprof.go, printCountProfile, of Go 1.19 to 1.27 writes it.
    """
    lines = [f"goroutine profile: total {sum(count.count for count in counts)}"]
    for row in counts:
        lines.append(f"{row.count} {row.key}")
        lines += aligned(_rows(row.calls[:most], rules))
        lines.append("")
    return "\n".join(lines) + "\n"


def _rows(calls: Sequence[StackedCall], rules: TracebackRules) -> list[list[str]]:
    """The frames, but for the runtime's innermost ones, unless there are no others.

    As printStackRecord.
    """
    shown = [call for _, call in calls if call.function != GOEXIT]
    hidden = 0
    while hidden < len(shown) and shown[hidden].function.startswith(rules.hidden_prefixes):
        hidden += 1
    return [
        [
            "#",
            f"{call.address:#x}",
            f"{printable(shortened(call.function, rules.shortened_type_arguments))}"
            f"+{call.offset:#x}",
            f"{printable(call.file)}:{call.line}",
        ]
        for call in shown[hidden:] or shown
    ]
