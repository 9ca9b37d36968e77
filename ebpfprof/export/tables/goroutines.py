"""A dump of goroutines as text for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ebpfprof.console.text import ages, counted, duration, printable
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.tables import waiting_for
from ebpfprof.export.tables.goroutine_frames import frame_as_json, shown_frames, wrapped
from ebpfprof.export.tables.stuck import as_json as stuck_as_json
from ebpfprof.export.tables.stuck import lines as stuck_lines
from ebpfprof.profile.deadlocks import circles
from ebpfprof.profile.goroutines import (
    Channel,
    DumpedGoroutine,
    GoroutineDump,
    GoroutineGroup,
    groups,
)
from ebpfprof.profile.stuck import Stuck, stuck

_MAX_STATES: Final = 6
_MAX_IDS: Final = 10
_MAX_ROUTES: Final = 3
_MAX_FRAMES: Final = 50  # at each end of a stack, as in Go's own tracebacks
_INDENT: Final = "    "
_NUMBERS: Final = {4: "four", 8: "eight"}
_NO_STACK: Final = {
    "running": "(it runs: its stack is not in memory; ebpfprof top --profile cpu shows it)"
}
_BARE_CALL: Final = "(no stack in memory: Go's scheduler does not know of this system call)"
_IN_C: Final = "(no stack: its thread has called Go, and is now in C)"
_MOVING: Final = "(no stack: it moved at each attempt to read it)"


def render(dump: GoroutineDump, *, each_alone: bool, width: int | None, color: bool) -> str:
    """The goroutines in groups, or, with `each_alone`, one by one in the order of their ids.

    Lines have at most `width` columns; None: no limit. Frames of the runtime are left out, unless
    there are no others. No text of the target reaches the terminal as a control character. Ends
    with a newline.
    """
    parts = [_heading(dump, width, color=color)]
    parts += [_stuck(finding, width, color=color) for finding in stuck(dump)]
    filtered = (
        [GoroutineGroup((goroutine,)) for goroutine in dump.goroutines]
        if each_alone
        else groups(dump.goroutines)
    )
    waiting = Counter(
        channel for goroutine in dump.goroutines for channel in set(goroutine.channels)
    )
    for group in filtered:
        head = _head(group, dump.apart_ns, each_alone=each_alone)
        shown = (_alarm if _is_leak(group) else _bold)(head, color=color)
        parts.append("\n" + _fitting(shown, head, width))
        about = [
            "" if each_alone else f"{_INDENT}{ids(group.goroutines)}",
            _about_requests(group),
            _about_channels(group, waiting),
            *_about_waits(group),
        ]
        parts += [fitting(line, width) for line in about if line]
        parts.append(stack(group, width))
    return "".join(parts)


def encode(dump: GoroutineDump) -> str:
    """The dump as JSON: times in seconds, frames innermost first."""
    return json.dumps(
        {
            "pid": dump.pid,
            "name": dump.name,
            "go": dump.version,
            "seconds_of_samples": dump.apart_ns / 1e9,
            "runtime_goroutines": dump.system,
            "without_stack": dump.moved,
            "beyond_limit": dump.beyond,
            "without_labels": dump.unlabelled,
            "deadlocks": [
                [goroutine.goid for goroutine in finding.goroutines]
                for finding in circles(dump.goroutines)
            ],
            "stuck": [stuck_as_json(finding) for finding in stuck(dump)],
            "goroutines": [_as_json(goroutine) for goroutine in dump.goroutines],
        },
        indent=1,
    )


def _as_json(goroutine: DumpedGoroutine) -> dict[str, Any]:
    created = goroutine.created_by
    return {
        "id": goroutine.goid,
        "state": goroutine.state,
        "did_not_move": goroutine.stood_ns > 0,
        "waited_at_least_s": goroutine.waited_ns / 1e9,
        "locked_to_thread": goroutine.is_locked,
        "labels": {label.key: label.value for label in goroutine.labels},
        "created_by": frame_as_json(created) if created else None,
        "created_by_goroutine": goroutine.parent or None,
        "stack": [frame_as_json(frame) for frame in goroutine.frames],
        "stack_is_whole": goroutine.is_whole,
        "channels": [
            {
                "address": f"{channel.address:#x}",
                "length": channel.length,
                "capacity": channel.capacity,
                "closed": channel.is_closed,
            }
            for channel in goroutine.channels
        ],
        "waits_for": waiting_for.as_json(goroutine.waits_for),
        "request": (
            {"method": request.method, "path": request.path, "pattern": request.pattern}
            if (request := goroutine.request)
            else None
        ),
        "can_never_go_on": goroutine.can_never_go_on,
        "leaked": goroutine.is_leaked,
    }


def _heading(dump: GoroutineDump, width: int | None, *, color: bool) -> str:
    title = f"{counted(len(dump.goroutines), 'goroutine')} of process {dump.pid} "
    title += f"({printable(dump.name)}, {printable(dump.version)})"
    standing = sum(goroutine.stood_ns > 0 for goroutine in dump.goroutines)
    lines = [
        f"{standing} did not move in {duration(dump.apart_ns)}, "
        f"in {_NUMBERS.get(dump.samples, dump.samples)} samples"
    ]
    states = Counter(goroutine.state for goroutine in dump.goroutines)
    named = [f"{count} {printable(state)}" for state, count in states.most_common(_MAX_STATES)]
    if named:
        others = len(states) - len(named)
        more = f", {counted(others, 'other state')}" if others > 0 else ""
        lines.insert(0, f"{', '.join(named)}{more}")
    if dump.moved:
        lines.append(f"incomplete: {dump.moved} without a stack: they moved at each attempt")
    if dump.unlabelled:
        lines.append(
            f"incomplete: the labels of {dump.unlabelled} of "
            f"{counted(len(dump.goroutines), 'goroutine')} could not be read"
        )
    if dump.beyond:
        lines.append(f"incomplete: {dump.beyond} more were not read")
    text = "".join(fitting(line, width) for line in lines)
    return _fitting(_bold(title, color=color), title, width) + text


def _stuck(finding: Stuck, width: int | None, *, color: bool) -> str:
    title, *lines = stuck_lines(finding)
    text = "\n" + "".join(
        _fitting(_alarm(line, color=color), line, width) for line in wrapped(title, width)
    )
    return text + "".join(
        fitting(part, width) for line in lines for part in wrapped(f"{_INDENT}{line}", width)
    )


def _head(group: GoroutineGroup, apart_ns: int, *, each_alone: bool) -> str:
    first, number = group.first, len(group.goroutines)
    words = [first.state]
    if group.longest_ns > apart_ns:
        some = f"{group.timed} of them " if group.timed < number else ""
        words.append(f"{some}for at least {ages(group.newest_ns, group.longest_ns)}")
    elif group.standing == number:
        words.append("did not move" if number == 1 else "none moved")
    elif group.standing:
        words.append(f"{group.standing} did not move")
    if first.can_never_go_on:
        words.append("can never go on")
    if first.is_leaked:
        words.append("leaked, as Go's runtime reported")
    if first.is_locked:
        words.append("locked to a thread")
    if labels := {f"{label.key}={label.value}" for label in first.labels} if each_alone else None:
        words.append(" ".join(sorted(labels)))
    which = f"goroutine {first.goid}" if each_alone else counted(number, "goroutine")
    return printable(f"{which}: {', '.join(words)}")


def ids(goroutines: Sequence[DumpedGoroutine]) -> str:
    """The ids of goroutines in a sentence: "goroutines 4, 5, 6 and 90 more"."""
    shown = ", ".join(str(goroutine.goid) for goroutine in goroutines[:_MAX_IDS])
    more = len(goroutines) - _MAX_IDS
    noun = "goroutine" if len(goroutines) == 1 else "goroutines"
    return f"{noun} {shown}{f' and {more:,} more' if more > 0 else ''}"


def _about_requests(group: GoroutineGroup) -> str:
    """The requests that a group handles, by route; "" if none is known."""
    routes = Counter(one.request.route for one in group.goroutines if one.request)
    if not routes:
        return ""
    if len(group.goroutines) == 1:
        (request,) = (one.request for one in group.goroutines)
        (route,) = routes
        is_in_route = request is None or route.endswith(request.path)
        path = "" if is_in_route or request is None else f", path {request.path}"
        return printable(f"{_INDENT}handling {route}{path}")
    largest = routes.most_common(_MAX_ROUTES)
    shown = ", ".join(f"{route} ({count})" for route, count in largest)
    more = len(routes) - len(largest)
    return printable(f"{_INDENT}handling {shown}{f' and {more:,} more' if more > 0 else ''}")


def _is_leak(group: GoroutineGroup) -> bool:
    return group.first.can_never_go_on or group.first.is_leaked


def _about_channels(group: GoroutineGroup, waiting: Mapping[Channel, int]) -> str:
    """The channel for which a group waits, or how many there are; "" without one."""
    channels = group.channels
    if len(channels) != 1:
        return f"{_INDENT}for {len(channels)} channels" if channels else ""
    (channel,) = channels
    words = [f"{_INDENT}for the channel at {channel.address:#x}"]
    if channel.capacity:
        words.append(f"{channel.length} of {channel.capacity} values in it")
    others = waiting[channel] - len(group.goroutines)
    if others:
        words.append(f"{counted(others, 'more goroutine')} wait{'s' if others == 1 else ''} for it")
    return ", ".join(words)


def _about_waits(group: GoroutineGroup) -> list[str]:
    """What else is known of the waits of a group, a line each."""
    waits = [goroutine.waits_for for goroutine in group.goroutines]
    return [printable(f"{_INDENT}{line}") for line in waiting_for.lines(waits)]


def stack(group: GoroutineGroup, width: int | None) -> str:
    """The stack that all goroutines of a group have, and the line that created them."""
    first = group.first
    lines = [(readable(frame.function), frame.position) for frame in shown_frames(first)]
    elided = len(lines) - 2 * _MAX_FRAMES
    if elided > 0:
        lines[_MAX_FRAMES:-_MAX_FRAMES] = [(f"...{elided} frames elided...", "")]
    if not lines:
        lines.append((_why_without_stack(group), ""))
    elif not first.is_whole:
        lines.append(("(cut off: the rest could not be read)", ""))
    if first.created_by:
        parents = {goroutine.parent for goroutine in group.goroutines}
        by = f" in goroutine {first.parent}" if parents == {first.parent} and first.parent else ""
        where = first.created_by.position
        lines.append((f"created by {readable(first.created_by.function)}{by}", where))
    room = max((len(name) for name, _ in lines), default=0)
    text = []
    for name, place in lines:
        line = printable(f"{_INDENT}{name:<{room}}  {place}".rstrip())
        if width is not None and len(line) > width:
            line = printable(f"{_INDENT}{name}  {place}".rstrip())
        text.append(fitting(line, width))
    return "".join(text)


def _why_without_stack(group: GoroutineGroup) -> str:
    threads = [goroutine.waits_for.thread for goroutine in group.goroutines]
    if group.first.state == "running" and all(thread and not thread.runs for thread in threads):
        return _BARE_CALL
    if group.first.state == "syscall" and group.first.is_whole:
        return _IN_C
    return _NO_STACK.get(group.first.state, _MOVING)


def _alarm(text: str, *, color: bool) -> str:
    return f"\x1b[1;31m{text}\x1b[0m" if color else text


def _bold(text: str, *, color: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if color else text


def fitting(line: str, width: int | None) -> str:
    """The line, without colours, with a newline; one that is too long is cut at its end."""
    return _fitting(line, line, width)


def _fitting(line: str, plain: str, width: int | None) -> str:
    """The line with a newline; a line that is too long is cut at its end."""
    if width is None or len(plain) <= width:
        return f"{line}\n"
    return f"{plain[: max(0, width - 3)]}...\n"
