"""The lines above the table of `ebpfprof top`: what is watched, how much there is of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.text import Text

from ebpfprof.console.text import duration, percent
from ebpfprof.top.lines import Part, cut, first_fitting, is_room, joined, wrapped
from ebpfprof.top.rows import Watched
from ebpfprof.top.state import TopView

TITLES: Final = {"block": "block", "mutex": "mutex", "cpu": "CPU", "locks": "locks"}
_MANY: Final = 59.95
_MAX_RULES_NAMED: Final = 4
_LEAST_SHARE: Final = 1e-4  # less is "less than"
_MAX_NAMED: Final = 20
_MAX_NOTES: Final = 3
_MAX_NOTE_LINES: Final = 3


def in_a_second(rate: float) -> str:
    """Seconds of delay in a second: as many as goroutines wait at a time, so never minutes."""
    return duration(1e9 * rate) if rate < _MANY else f"{rate:,.0f} s"


def count_per_s(count: float) -> str:
    """Events in a second, with the digits that tell something."""
    return f"{count:,.0f}" if count >= 99.95 or not count else f"{count:.1f}"


def of_processor(rate: float) -> str:
    """Seconds of CPU time in a second."""
    return f"{100 * rate:.1f}%"


def header(view: TopView, width: int | None, safe: Callable[[str], str]) -> list[Text]:
    """What is watched, for how long, how much there is of it, and what is left out or wrong.

    `safe` makes text of a target fit for a terminal.
    """
    moment, shown = view.moment, view.shown
    found = [_title(view, width, safe), joined(_sums(view), width)]
    if shown.hidden:
        found.append(Text(_hidden(view, width), "dim"))
    if view.pattern:
        of = f"{len(shown.rows)} of {shown.matched} rows match "
        found.append(Text(cut(of + safe(view.pattern.pattern), width), "yellow"))
    if moment.losses:
        long = "; ".join(str(loss) for loss in moment.losses)
        short = ", ".join(f"{loss.count} {loss.name}" for loss in moment.losses)
        number = f"{sum(loss.count for loss in moment.losses)}"
        lost = [f"Lost: {text}" for text in (long, short, number)]
        found.append(Text(first_fitting(lost, width), "bold red"))
    notes = [t.ending for t in moment.targets if t.ending] + list(moment.notes)
    for note in notes[:_MAX_NOTES]:
        found += wrapped(safe(note), width, "yellow", _MAX_NOTE_LINES)
    return found


def _title(view: TopView, width: int | None, safe: Callable[[str], str]) -> Text:
    moment = view.moment
    parts = [Part("ebpfprof top", 2, "bold"), Part(TITLES[view.view], 1, "bold cyan")]
    if view.paused:
        parts.append(Part("PAUSED", 0, "bold yellow"))
    since = Part(f"for {duration(moment.uptime_ns)}", 4)
    for text in _targets(moment.targets, safe):
        line = [*parts, Part(text, 3), since]
        if is_room("  ".join(part.text for part in line), width):
            break
    return joined(line, width)


def _targets(targets: Sequence[Watched], safe: Callable[[str], str]) -> list[str]:
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
    events = count_per_s(reading.count_per_s)
    if reading.view == "cpu":
        parts = [Part(f"{events} samples/s", 1), Part(f"{of_processor(rate)} of a CPU", 0)]
    else:
        parts = [Part(f"{events} events/s", 1), Part(f"waiting {in_a_second(rate)}/s", 0)]
    parts.append(Part(f"last {duration(reading.window_ns)}", 5))
    parts.append(Part(f"ebpfprof itself {_share(moment.own_cpu)} CPU", 6))
    if moment.lost_share > 0:
        each = "target loses" if len(moment.targets) == 1 else "targets lose"
        about = "~" if moment.lost_share >= _LEAST_SHARE else ""
        parts.append(Part(f"{each} {about}{_share(moment.lost_share)}", 3))
    if moment.watched_share < 1:
        parts.append(Part(f"watched {_share(moment.watched_share)}, scaled", 2))
    if not moment.losses:
        parts.append(Part("nothing lost", 4))
    return parts


def _share(share: float) -> str:
    return percent(share).replace(" %", "%")


def _hidden(view: TopView, width: int | None) -> str:
    hidden = view.shown.hidden
    rate = sum(each.rate for each in hidden)
    count = sum(each.count_per_s for each in hidden)
    sums = f"{in_a_second(rate)}/s, {count_per_s(count)} waits/s"
    named = [f"{each.rule.name} {in_a_second(each.rate)}/s" for each in hidden[:_MAX_RULES_NAMED]]
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
