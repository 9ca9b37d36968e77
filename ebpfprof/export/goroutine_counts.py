"""Goroutines by stack and labels, as Go's goroutine profile has them, and as a profile.

runtime/pprof/pprof.go, printCountProfile, and runtime/traceback.go, tracebackPCs, Go 1.19 to 1.27.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import well_formed
from ebpfprof.export.go_quotes import quoted
from ebpfprof.profile.model import Frame, Label, Location, Sample

if TYPE_CHECKING:
    from ebpfprof.profile.model import Mapping
    from ebpfprof.profile.tracebacks import CallSite, LogicalCall, TracebackStyle, TracedGoroutine

GOEXIT: Final = "runtime.goexit"
"""The outermost function of each goroutine; profiles don't show it."""
NO_STACK: Final = "# running: no stack"
"""A comment for readers of the text, behind a stack that is the outermost function alone."""
_NO_STACK_FRAME: Final = Location(0, None, (Frame("[running: no stack]", "", 0),))


class StackedCall(NamedTuple):
    """A logical frame, and the number of its physical frame on the stack."""

    number: int
    call: LogicalCall


@dataclass(slots=True)
class GoroutineCount:
    """How many goroutines have a stack and labels.

    `key` is what Go writes behind the count: an @, an address for each logical frame, one byte
    behind that of the call, and a line for the labels. `calls` has at most as many frames as a Go
    profile; `has_stack` is False for goroutines that run: then it is their outermost function.
    """

    count: int
    key: str
    calls: Sequence[StackedCall]
    labels: tuple[tuple[bytes, bytes], ...]
    has_stack: bool


def counted(goroutines: Iterable[TracedGoroutine], style: TracebackStyle) -> list[GoroutineCount]:
    """The goroutines by stack and labels, in Go's order: the most frequent first, then by key."""
    stacks = _Stacks(style.most_profiled)
    counts: dict[str, GoroutineCount] = {}
    for goroutine in goroutines:
        key, calls = stacks.of(goroutine)
        known = counts.get(key)
        if known is None:
            counts[key] = GoroutineCount(1, key, calls, goroutine.labels or (), goroutine.has_stack)
        else:
            known.count += 1
    return sorted(counts.values(), key=lambda count: (-count.count, count.key))


def samples(counts: Iterable[GoroutineCount], mappings: Sequence[Mapping]) -> Iterator[Sample]:
    """The same as samples of a profile.

    The last physical frame of a stack that is cut has all that was inlined there
    (runtime/symtab.go, expandFinalInlineFrame).
    """
    locations: dict[tuple[int, tuple[Frame, ...]], Location] = {}
    for count in counts:
        stack = [] if count.has_stack else [_NO_STACK_FRAME]
        for _, group in groupby(count.calls, key=lambda call: call.number):
            calls = [call for _, call in group if call.function != GOEXIT]
            if not calls:
                continue
            key = calls[0].address, tuple(map(_frame, calls))
            if key not in locations:
                locations[key] = Location(key[0], _mapping_of(key[0], mappings), key[1])
            stack.append(locations[key])
        labels = tuple(
            Label(_text(key), _text(value)) for key, value in count.labels if key and value
        )
        yield Sample(tuple(stack), (count.count,), labels)


class _Stacks:
    """The stacks of one target, each walked once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[int, ...], tuple[str, Sequence[StackedCall]]] = {}
        self._kept: list[tuple[CallSite, ...]] = []

    def of(self, goroutine: TracedGoroutine) -> tuple[str, Sequence[StackedCall]]:
        """The key of a goroutine, and its calls."""
        if goroutine.has_stack:
            # Wrappers don't count, but there are never several for each function.
            frames = goroutine.frames[: 4 * self._most]
            key, calls = self._stack(tuple(frame.site for frame in frames))
        else:
            calls = (
                [StackedCall(0, call) for call in goroutine.start.calls[-1:]]
                if goroutine.start
                else []
            )
            key = _key(calls)
        if goroutine.labels is not None:
            labels = sorted(f"{quoted(key)}:{quoted(value)}" for key, value in goroutine.labels)
            key += f"\n# labels: {{{', '.join(labels)}}}"
        return key if goroutine.has_stack else f"{key}\n{NO_STACK}", calls

    def _stack(self, sites: tuple[CallSite, ...]) -> tuple[str, Sequence[StackedCall]]:
        key = tuple(map(id, sites))
        known = self._known.get(key)
        if known is None:
            self._kept.append(sites)  # so that their id() stays their own
            calls = list(_logical(sites))
            depth = self._most
            text = _key(calls[:depth])
            while depth < len(calls) and calls[depth].number == calls[depth - 1].number:
                depth += 1
            known = self._known[key] = (text, calls[:depth])
        return known


def _logical(sites: Iterable[CallSite]) -> Iterator[StackedCall]:
    """The calls of a stack, without wrappers of what they called."""
    elides = True
    for number, site in enumerate(sites):
        for call in site.calls:
            if not (call.is_wrapper and elides):
                yield StackedCall(number, call)
            elides = call.elides_wrapper


def _key(calls: Iterable[StackedCall]) -> str:
    return "@" + "".join(f" {call.address + 1:#x}" for _, call in calls)


def _frame(call: LogicalCall) -> Frame:
    return Frame(call.function, call.file, call.line, call.start_line)


def _mapping_of(address: int, mappings: Iterable[Mapping]) -> Mapping | None:
    return next((mapping for mapping in mappings if mapping.start <= address < mapping.limit), None)


def _text(data: bytes) -> str:
    return well_formed(data.decode("utf-8", "backslashreplace"))
