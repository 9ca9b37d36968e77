"""Goroutines as the text of Go's own tracebacks: ?debug=2 of a goroutine profile, crashes.

As runtime.Stack writes it (runtime/traceback.go, Go 1.19 to 1.27), in the way of the target's Go
version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import printable
from ebpfprof.export.go_quotes import is_plain, quoted_by_runtime, shortened

if TYPE_CHECKING:
    from ebpfprof.profile.tracebacks import (
        CallSite,
        LogicalCall,
        PhysicalCall,
        TracebackStyle,
        TracedGoroutine,
    )
    from symbolizer.go.runtime_layout import TracebackRules

MOST_BYTES: Final = 64 << 20
"""Where Go itself cuts the text (runtime/pprof/pprof.go, writeGoroutineStacks)."""
_MINUTE_NS: Final = 60_000_000_000
_RUNTIME: Final = "runtime."
_PANIC: Final = "runtime.gopanic"
_MAIN_GOROUTINE: Final = 1
_NO_LIMIT: Final = 1 << 62
_NO_STACK: Final = "\tgoroutine running on other thread; stack unavailable\n"
_CUT: Final = "...additional frames elided...\n"


def text(goroutines: Iterable[TracedGoroutine], style: TracebackStyle) -> bytes:
    """The text of all these goroutines; what is longer than MOST_BYTES is cut, as Go does."""
    writer = _Writer(style)
    parts, size = [], 0
    for goroutine in goroutines:
        part = writer.goroutine(goroutine).encode("utf-8", "backslashreplace")
        parts.append(part)
        size += len(part) + 1
        if size > MOST_BYTES:
            break
    return b"\n".join(parts)[:MOST_BYTES]


class _Line(NamedTuple):
    """A logical frame and its text, but for its arguments: they stand between the two parts."""

    call: LogicalCall
    is_named: bool
    """Whether its name alone makes it one that is shown."""
    is_panic: bool
    before: str
    after: str


class _Printed(NamedTuple):
    """What traceback2 of Go returns, and where it stopped.

    `passed` is how many logical frames it passed, `of_last` how many of those in the physical frame
    at `position`, at which it stopped. `elides_wrapper` is of the last call.
    """

    passed: int
    of_last: int
    position: int
    elides_wrapper: bool


class _Writer:
    """Writes goroutines of one target; each call site is formatted once."""

    def __init__(self, style: TracebackStyle) -> None:
        self._rules = style.rules
        self._shows_labels = style.shows_labels
        self._lines: dict[int, tuple[CallSite, list[_Line]]] = {}

    def goroutine(self, goroutine: TracedGoroutine) -> str:
        """One goroutine, without the empty line that separates it from the next one."""
        body = self._stack(goroutine) if goroutine.has_stack else _NO_STACK
        return (
            header(goroutine, self._rules, shows_labels=self._shows_labels)
            + body
            + self._creator(goroutine)
        )

    def _stack(self, goroutine: TracedGoroutine) -> str:
        out: list[str] = []
        write = self._first_frames if self._rules.most_frames else self._both_ends
        if not write(goroutine.frames, out, shows_all=False):
            write(goroutine.frames, out, shows_all=True)
        if goroutine.unknown_pc and goroutine.frames:
            name = printable(goroutine.frames[-1].site.calls[-1].function)
            out.append(
                f"runtime: g {goroutine.goid}: unexpected return pc for {name} "
                f"called from {goroutine.unknown_pc:#x}\n"
            )
        elif not goroutine.is_whole:
            out.append(_CUT)
        return "".join(out)

    def _first_frames(
        self, frames: Sequence[PhysicalCall], out: list[str], *, shows_all: bool
    ) -> int:
        """The first frames, as Go 1.19 (gentraceback). Returns how many it wrote."""
        most = self._rules.most_frames
        printed = self._print(frames[:most], 0, out, shows_all=shows_all)
        if printed.passed == most:
            out.append(_CUT)
        return printed.passed

    def _both_ends(self, frames: Sequence[PhysicalCall], out: list[str], *, shows_all: bool) -> int:
        """The first frames and the last ones, as Go 1.21 and later (traceback1)."""
        inner, outer = self._rules.inner_frames, self._rules.outer_frames
        first = self._print(frames, 0, out, shows_all=shows_all, most=inner)
        if first.passed < inner:
            return first.passed
        elides = first.elides_wrapper
        rest = self._print(
            frames, first.position, None, shows_all=shows_all, elides_wrapper=elides
        ).passed
        elided = max(0, rest - first.of_last - outer)
        if elided:
            out.append(f"...{elided} frames elided...\n")
        self._print(
            frames,
            first.position,
            out,
            shows_all=shows_all,
            skip=first.of_last + elided,
            most=outer,
            elides_wrapper=elides,
        )
        return first.passed

    def _print(
        self,
        frames: Sequence[PhysicalCall],
        start: int,
        out: list[str] | None,
        *,
        shows_all: bool,
        skip: int = 0,
        most: int = _NO_LIMIT,
        elides_wrapper: bool = True,
    ) -> _Printed:
        """Pass over `skip` logical frames, then write at most `most`; without `out`, count them.

        As traceback2 of Go, which begins each time at a physical frame, and stops at the frame
        that is one too many.
        """
        count = 0
        for position in range(start, len(frames)):
            frame, of_last = frames[position], 0
            for line in self._lines_of(frame.site):
                elides, elides_wrapper = elides_wrapper, line.call.elides_wrapper
                if not (shows_all or self._is_shown(line, is_first=count == 0, elides=elides)):
                    continue
                if count == skip + most:
                    return _Printed(count, of_last, position, elides_wrapper)
                count += 1
                of_last += 1
                if count > skip and out is not None:
                    out += (line.before, _arguments(frame, line), line.after)
        return _Printed(count, 0, len(frames), elides_wrapper)

    def _is_shown(self, line: _Line, *, is_first: bool, elides: bool) -> bool:
        """As showfuncinfo; `elides`: whether the call that it made elides wrappers."""
        if line.call.is_wrapper and elides:
            return False
        if line.call.is_finalizer and self._rules.shows_finalizers:
            return True
        return line.is_named or (line.is_panic and not is_first)

    def _lines_of(self, site: CallSite) -> list[_Line]:
        known = self._lines.get(id(site))
        if known is None:  # the site is kept, so that its id() stays its own
            *inlined, physical = site.calls
            lines = [
                self._line(call, f"{self._name(call)}(...", f")\n{_place(call)}\n")
                for call in inlined
            ]
            behind = _behind(site.return_offset)
            lines.append(
                self._line(physical, f"{self._name(physical)}(", f")\n{_place(physical)}{behind}\n")
            )
            known = self._lines[id(site)] = (site, lines)
        return known[1]

    def _line(self, call: LogicalCall, before: str, after: str) -> _Line:
        is_named = is_shown_name(call.function, self._rules)
        return _Line(call, is_named, call.function == _PANIC, before, after)

    def _name(self, call: LogicalCall) -> str:
        if call.function == _PANIC:
            return "panic"
        return printable(shortened(call.function, self._rules.shortened_type_arguments))

    def _creator(self, goroutine: TracedGoroutine) -> str:
        """The line of its `go` statement, unless that is the runtime's (printcreatedby)."""
        if goroutine.creator is None or goroutine.goid == _MAIN_GOROUTINE:
            return ""
        (line,) = self._lines_of(goroutine.creator)
        if not self._is_shown(line, is_first=False, elides=True):
            return ""
        by = f" in goroutine {goroutine.parent}" if goroutine.parent else ""
        place = _place(line.call) + _behind(goroutine.creator.return_offset)
        return f"created by {self._name(line.call)}{by}\n{place}\n"


def header(goroutine: TracedGoroutine, rules: TracebackRules, *, shows_labels: bool) -> str:
    """The first line of a goroutine (goroutineheader)."""
    parts = [f"goroutine {goroutine.goid} [{goroutine.status}"]
    if goroutine.is_leaked and rules.shows_leaks:
        parts.append(" (leaked)")
    if goroutine.is_scanned:
        parts.append(" (scan)")
    if (
        goroutine.bubble is not None
        and goroutine.reason in rules.durable_reasons
        and (goroutine.is_waiting or not rules.durable_only_while_waiting)
        and not goroutine.status.endswith("(durable)")
    ):
        parts.append(" (durable)")
    if goroutine.waited_ns >= _MINUTE_NS:
        parts.append(f", {goroutine.waited_ns // _MINUTE_NS} minutes")
    if goroutine.is_locked:
        parts.append(", locked to thread")
    if goroutine.bubble is not None:
        parts.append(f", {rules.bubble} {goroutine.bubble}")
    labels = _labels(goroutine.labels, rules) if goroutine.labels and shows_labels else ""
    return "".join(parts) + (
        f" labels:{labels}]:\n"
        if labels and rules.labels == "inside"
        else f"] {labels}:\n"
        if labels
        else "]:\n"
    )


def is_shown_name(name: str, rules: TracebackRules) -> bool:
    """Whether tracebacks show a function of that name: any but the runtime's own internals."""
    if not name.startswith(_RUNTIME):
        return "." in name
    exported = name.removeprefix(_RUNTIME)
    receiver = ""
    if rules.shows_exported_methods:
        receiver, _, exported = exported.rpartition(".")
        if len(receiver) >= 3 and receiver.startswith("(*") and receiver.endswith(")"):
            receiver = receiver[2:-1]
    return _begins_upper(exported) and (not receiver or _begins_upper(receiver))


def _begins_upper(name: str) -> bool:
    return "A" <= name[:1] <= "Z"


def _labels(labels: Iterable[tuple[bytes, bytes]], rules: TracebackRules) -> str:
    def written(data: bytes) -> str:
        if rules.labels == "behind" and is_plain(data):
            return data.decode()
        return quoted_by_runtime(data, quotes_bytes=rules.quotes_bytes)

    return "{" + ", ".join(f"{written(key)}: {written(value)}" for key, value in labels) + "}"


def _arguments(frame: PhysicalCall, line: _Line) -> str:
    """What stands between the parentheses; the last call of a site is the one that has them."""
    site = frame.site
    if not site.arguments or line.call is not site.calls[-1]:
        return ""
    values = iter(frame.values)
    arguments = []
    for argument in site.arguments:
        if isinstance(argument, str):
            arguments.append(argument)
            continue
        value = next(values)
        arguments.append(
            "_" if value is None else f"{value:#x}" + ("" if argument.is_live else "?")
        )
    return "".join(arguments)


def _place(call: LogicalCall) -> str:
    return f"\t{printable(call.file)}:{call.line}"


def _behind(offset: int) -> str:
    return f" +{offset:#x}" if offset > 0 else ""
