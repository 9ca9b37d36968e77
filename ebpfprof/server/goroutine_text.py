"""A goroutine profile as the text that net/http/pprof answers with ?debug=1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import printable
from ebpfprof.export.go_quotes import quoted, shortened
from ebpfprof.server.pprof_text import aligned

if TYPE_CHECKING:
    from ebpfprof.profile.tracebacks import (
        Call,
        CallSite,
        PhysicalCall,
        TracebackStyle,
        TracedGoroutine,
    )

_GOEXIT: Final = "runtime.goexit"
_NO_STACK: Final = "# running: no stack"
"""A comment for readers of the format, behind a stack that is the outermost function alone."""


def text(goroutines: Iterable[TracedGoroutine], style: TracebackStyle) -> str:
    """The goroutines by stack and labels, the most frequent first.

    As runtime/pprof/pprof.go, printCountProfile, of Go 1.19 to 1.27. Behind the @ stands an address
    for each logical frame, one byte behind that of the call.
    """
    stacks = _Stacks(style)
    counts = Counter[str]()
    calls: dict[str, Sequence[Call]] = {}
    for each in goroutines:
        key, calls_of = stacks.of(each)
        counts[key] += 1
        calls.setdefault(key, calls_of)
    lines = [f"goroutine profile: total {counts.total()}"]
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"{count} {key}")
        lines += aligned(stacks.rows(calls[key]))
        lines.append("")
    return "\n".join(lines) + "\n"


class _Stacks:
    """The stacks of one target, each formatted once."""

    def __init__(self, style: TracebackStyle) -> None:
        self._rules, self._most = style.rules, style.most_profiled
        self._known: dict[tuple[int, ...], tuple[str, Sequence[Call]]] = {}
        self._kept: set[CallSite] = set()

    def of(self, each: TracedGoroutine) -> tuple[str, Sequence[Call]]:
        """The line of a goroutine's stack, with that of its labels, and the calls of the stack."""
        line, calls = self._stack(each.frames) if each.has_stack else self._outermost(each)
        if each.labels is not None:
            labels = sorted(f"{quoted(key)}:{quoted(value)}" for key, value in each.labels)
            line += f"\n# labels: {{{', '.join(labels)}}}"
        if not each.has_stack:
            line += f"\n{_NO_STACK}"
        return line, calls

    def rows(self, calls: Sequence[Call]) -> list[list[str]]:
        """The lines of the calls, but for the runtime's innermost ones, unless there are no others.

        As printStackRecord.
        """
        shown = [each for each in calls if each.function != _GOEXIT]
        hidden = 0
        while hidden < len(shown) and shown[hidden].function.startswith(
            self._rules.hidden_prefixes
        ):
            hidden += 1
        return [self._row(each) for each in shown[hidden:] or shown]

    def _row(self, call: Call) -> list[str]:
        name = shortened(call.function, self._rules.shortened_type_arguments)
        where = f"{printable(call.file)}:{call.line}"
        return ["#", f"{call.address:#x}", f"{printable(name)}+{call.offset:#x}", where]

    def _stack(self, frames: Sequence[PhysicalCall]) -> tuple[str, Sequence[Call]]:
        key = tuple(id(each.site) for each in frames)
        known = self._known.get(key)
        if known is None:  # the sites are kept, so that their id() stays their own
            self._kept.update(each.site for each in frames)
            calls = _logical(frames)[: self._most]
            known = self._known[key] = (_line(calls), calls)
        return known

    def _outermost(self, each: TracedGoroutine) -> tuple[str, Sequence[Call]]:
        calls = each.start.calls[-1:] if each.start else ()
        return _line(calls), calls


def _logical(frames: Sequence[PhysicalCall]) -> list[Call]:
    """The calls of a stack, without wrappers of what they called (tracebackPCs)."""
    found = []
    elides = True
    for frame in frames:
        for call in frame.site.calls:
            if not (call.is_wrapper and elides):
                found.append(call)
            elides = call.elides_wrapper
    return found


def _line(calls: Sequence[Call]) -> str:
    return "@" + "".join(f" {call.address + 1:#x}" for call in calls)
