"""The stacks of a row of `ebpfprof top` as lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from rich.text import Text

from ebpfprof.console.columns import cells_of, fit
from ebpfprof.export.tables.quantities import known_digits, rounded
from ebpfprof.profile.evidence import MAX_ERROR
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Frame, Label
from ebpfprof.top.lines import wrapped
from ebpfprof.top.numbers import amount, error, events_of, per, share, total
from ebpfprof.top.rows import Reading, TopRow, TopStack
from ebpfprof.top.views import view_named

_MAX_STACKS: Final = 50
_MAX_FRAMES: Final = 100
_MIN_PLACE: Final = 12


def title(row: TopRow) -> str:
    """What the row is: its operation, name and place. Not fit for a terminal yet."""
    return " ".join(part for part in (row.key.operation, row.key.name, row.key.place) if part)


def stack_lines(
    reading: Reading, row: TopRow, width: int, safe: Callable[[str], str]
) -> Iterator[Text]:
    """The stacks of a row with their values and errors, the largest first.

    `safe` makes text of a target fit for a terminal.
    """
    if row.key.idle:
        idle = f"idle, {row.key.idle.name}: {row.key.idle.reason}"
        yield from wrapped(safe(idle), width, "dim")
    stacks = reading.stacks_of(row.number)
    all_rates = defaultdict[str, float](float)
    for stack in stacks:
        all_rates[stack.role] += stack.rate
    for stack in stacks[:_MAX_STACKS]:
        yield Text()
        text = _values(view_named(reading.view).kind, stack, all_rates[stack.role], safe)
        yield from wrapped(text, width, "cyan")
        if stack.sample.labels:
            labels = "  ".join(_label(label) for label in stack.sample.labels)
            yield from wrapped(safe(labels), width, "magenta")
        yield from _frames(stack, width, safe)
    if len(stacks) > _MAX_STACKS:
        yield from wrapped(f"... and {len(stacks) - _MAX_STACKS} more stacks", width, "dim")


def _values(
    kind: ProfileKind, stack: TopStack, all_rates: float, safe: Callable[[str], str]
) -> str:
    values = stack.sample.values
    role = f"{stack.role}: " if stack.role else ""
    digits, all_digits = known_digits(stack.error), known_digits(stack.total_error)
    text = f"{role}{amount(kind, stack.rate, digits)}{per(kind)}"
    text += f" {error(stack.error, safe)}" if stack.error > 0 else ""
    text += f" ({share(stack.rate, all_rates)})"
    if len(values) > 1:
        events = events_of(kind, stack.count_per_s, stack.value, stack.count_error)
        text += f"  {events}{per(kind)}"
    if not kind.is_moment:
        has_count = values[0] or not values[-1]
        has_count = has_count and stack.total_count_error <= MAX_ERROR
        count = rounded(values[0], stack.total_count_error)
        times = f", {count:,.0f} times" if has_count else ""
        text += f"  since the start: {total(kind, values[-1], all_digits)}{times}"
    return text


def _frames(stack: TopStack, width: int, safe: Callable[[str], str]) -> Iterator[Text]:
    locations = stack.sample.locations
    for location in locations[:_MAX_FRAMES]:
        if not location.frames:
            yield Text(f"    {location.address:#x}")
        for index, frame in enumerate(location.frames):
            is_inlined = index + 1 < len(location.frames)
            yield _frame(frame, " (inlined)" if is_inlined else "", width, safe)
    if len(locations) > _MAX_FRAMES:
        yield Text(f"    ... and {len(locations) - _MAX_FRAMES} more callers", "dim")


def _frame(frame: Frame, inlined: str, width: int, safe: Callable[[str], str]) -> Text:
    room = max(width - 4, 1)
    name = fit(safe(frame.function) + inlined, room)
    line = Text(f"    {name}")
    left = room - cells_of(name) - 2
    if frame.file and left >= _MIN_PLACE:
        line.append(f"  {fit(safe(f'{frame.file}:{frame.line}'), left)}", "dim")
    return line


def _label(label: Label) -> str:
    return f"{label.key}={label.value}{label.unit}"
