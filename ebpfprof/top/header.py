"""The lines above the table of `ebpfprof top`: the targets, the sums, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.text import Text

from ebpfprof.console.text import duration, percent
from ebpfprof.top.lines import Part, cut, first_fitting, flowed, is_room, wrapped
from ebpfprof.top.numbers import amount, count_per_s, events, in_a_second, of_processor, per
from ebpfprof.top.rows import TargetLine
from ebpfprof.top.state import TopView
from ebpfprof.top.views import view_named

_MAX_RULES_NAMED: Final = 4
_LEAST_SHARE: Final = 1e-4  # less is "less than"
_MAX_NAMED: Final = 20
_MAX_NOTES: Final = 3
_MAX_NOTE_LINES: Final = 3


def header(view: TopView, width: int | None, safe: Callable[[str], str]) -> list[Text]:
    """The targets, for how long they were recorded, the sums, and what is left out or wrong.

    `safe` makes text of a target fit for a terminal.
    """
    shown = view.shown
    texts = _title(view, width, safe)
    if view.moment.readings:
        texts += flowed(_sums(view), width)
    if shown.hidden:
        texts.append(Text(_hidden(view, width), "dim"))
    if view.pattern:
        of = f"{len(shown.rows)} of {shown.matched} rows match "
        texts.append(Text(cut(of + safe(view.pattern.pattern), width), "yellow"))
    return texts + caveats(view, width, safe)


def caveats(view: TopView, width: int | None, safe: Callable[[str], str]) -> list[Text]:
    """What was lost, which targets have ended, and what else is to be known of the numbers."""
    moment = view.moment
    texts = []
    if moment.losses:
        text = "Lost: " + "; ".join(str(loss) for loss in moment.losses)
        texts += wrapped(text, width, "bold red", _MAX_NOTE_LINES)
    notes = [t.ending for t in moment.targets if t.ending] + list(moment.notes)
    for note in notes[:_MAX_NOTES]:
        texts += wrapped(safe(note), width, "yellow", _MAX_NOTE_LINES)
    return texts


def _title(view: TopView, width: int | None, safe: Callable[[str], str]) -> list[Text]:
    moment = view.moment
    first = [Part("ebpfprof top", "bold"), Part(view_named(view.view).title, "bold cyan")]
    if view.paused:
        first.append(Part("PAUSED", "bold yellow"))
    since = [Part(f"for {duration(moment.uptime_ns)}")] if moment.uptime_ns > 0 else []
    for text in _targets(moment.targets, safe):
        parts = [*first, Part(text), *since]
        if is_room("  ".join(part.text for part in parts), width):
            break
    return flowed(parts, width)


def _targets(targets: Sequence[TargetLine], safe: Callable[[str], str]) -> list[str]:
    """The targets in words, the longest way first."""
    short = [safe(f"{target.name} {target.pid}") for target in targets]
    if len(targets) == 1:
        (target,) = targets
        return [safe(f"{short[0]} {target.go_version}").rstrip(), short[0], f"{target.pid}"]
    number, most = f"{len(targets)} processes", min(len(targets) - 1, _MAX_NAMED)
    long = [safe(f"{target.name} {target.pid} {target.go_version}").rstrip() for target in targets]
    some = [f"{number}: {', '.join(short[:n])}, ..." for n in range(most, 0, -1)]
    return [f"{number}: {', '.join(long)}", f"{number}: {', '.join(short)}", *some, number]


def _sums(view: TopView) -> list[Part]:
    moment, reading, rate = view.moment, view.reading, view.shown.rate
    kind = view_named(reading.view).kind
    of_value = f"{kind.table.value.lower()} {amount(kind, rate)}{per(kind)}"
    if kind.table.rate == "processors":
        of_value = f"{of_processor(rate)} of a CPU"
    parts = [f"{events(kind, reading.count_per_s)} {kind.events}{per(kind)}"]
    if kind.table.count and rate > 0 and not reading.count_per_s:
        parts = [f"{kind.events} in progress"]  # none has ended
    if kind.has_amount:
        parts.append(of_value)
    if not kind.is_moment and reading.window_ns > 0:
        parts.append(f"last {duration(reading.window_ns)}")
    parts.append(f"ebpfprof itself {_share(max(0.0, moment.own_cpu))} CPU")
    if moment.overhead_share > 0:
        about = "~" if moment.overhead_share >= _LEAST_SHARE else ""
        parts.append(f"overhead {about}{_share(moment.overhead_share)}")
    if moment.recorded_share < 1:
        parts.append(f"recorded {_share(moment.recorded_share)}, scaled")
    if moment.tracing:
        parts.append(moment.tracing)
    if not moment.losses:
        parts.append("nothing lost")
    return [Part(text) for text in parts]


def _share(share: float) -> str:
    return percent(share).replace(" %", "%")


def _hidden(view: TopView, width: int | None) -> str:
    hidden = view.shown.hidden
    rate = sum(row.rate for row in hidden)
    count = sum(row.count_per_s for row in hidden)
    sums = f"{in_a_second(rate)}/s" + (f", {count_per_s(count)} waits/s" if count else "")
    named = [f"{row.rule.name} {in_a_second(row.rate)}/s" for row in hidden[:_MAX_RULES_NAMED]]
    choices = [
        f"idle, hidden (i shows it): {sums} "
        f"({', '.join(named[:number])}{', ...' if number < len(hidden) else ''})"
        for number in range(len(named), 0, -1)
    ]
    more = [
        f"idle, hidden (i shows it): {sums}",
        f"idle, hidden (i): {in_a_second(rate)}/s",
        "idle hidden",
    ]
    return first_fitting([*choices, *more], width)
