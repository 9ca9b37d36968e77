"""A profile by handler: the sums of functions that servers called, and what they consist of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ebpfprof.console import columns
from ebpfprof.console.text import counted, percent
from ebpfprof.export.kinds import default_index
from ebpfprof.export.tables.quantities import (
    amount,
    count_cell,
    error_cell,
    heading,
    known_digits,
    share,
)
from ebpfprof.profile.handlers import handler_label
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.wait_groups import group_of_running, group_of_wait
from ebpfprof.profilers.registry import find_kind

OUTSIDE = "(outside of handlers)"
_LEAST_PART = 0.01
_PARTS = 5


@dataclass(slots=True)
class HandlerSums:
    """The sums of all samples of a handler; `name` is "" for those of none.

    `count` is the sum of their first values, `value` of those that are shown, `variance` that of
    `value`. `parts` has `value` by group (profile.wait_groups), if the profile's kind has groups.
    """

    name: str
    count: int = 0
    value: int = 0
    variance: float = 0.0
    count_variance: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)

    @property
    def error(self) -> float:
        """The standard error of `value`, as a part of it; 0 for a value that is exact."""
        return math.sqrt(self.variance) / self.value if self.value else 0.0

    @property
    def consists_of(self) -> str:
        """Its largest parts, in words: "locks 61 %, network 39 %"; "" if there are none."""
        largest = self.parts.most_common(_PARTS)
        shown = [(name, part / self.value) for name, part in largest if self.value > 0]
        return ", ".join(f"{name} {percent(part)}" for name, part in shown if part >= _LEAST_PART)


def handler_sums(profile: Profile, index: int = -1) -> list[HandlerSums]:
    """The sums by the label HANDLER, the largest value at `index` first; those of none last."""
    group_of = _grouping(profile)
    sums: dict[str, HandlerSums] = {}
    for sample in profile.samples:
        name = handler_label(sample) or ""
        total = sums.setdefault(name, HandlerSums(name))
        total.count += sample.values[0]
        total.value += sample.values[index]
        total.variance += sample.variance
        total.count_variance += sample.count_variance
        if group_of:
            total.parts[group_of(sample)] += sample.values[index]
    return sorted(sums.values(), key=lambda one: (not one.name, -one.value, one.name))


def _grouping(profile: Profile) -> Callable[[Sample], str] | None:
    """What gives the group of each sample; None if samples have none, as allocations."""
    kind = find_kind(profile.kind)
    if kind is None:
        return None
    if kind.table.rows == "operations":
        return group_of_wait
    return group_of_running if kind.table.rate == "processors" else None


def render(
    profile: Profile,
    *,
    index: int | None = None,
    hide_idle: bool = False,
    limit: int = 20,
    width: int | None,
    color: bool,
) -> str:
    """A table of the first `limit` handlers; shares are parts of all that is shown.

    Below each handler is what its time consists of. `index` selects the value, by default that
    which the profile's kind shows. For `width` and `color` see columns.table(), which makes text
    of the target printable. Ends with a newline.
    """
    kind = find_kind(profile.kind)
    if kind and index is None:
        profile = kind.in_tables(profile)
    if hide_idle:
        profile, _ = split(profile)
    shown = default_index(profile) if index is None else index
    rows = handler_sums(profile, shown)
    if not any(row.name for row in rows):
        return "No handler is on any stack.\n"
    value_type = profile.sample_types[shown]
    whole = sum(row.value for row in rows)
    is_estimate = any(row.variance for row in rows)
    has_count = kind is not None and kind.has_amount and bool(kind.table.count)
    names = [kind.table.value if kind and index is None else heading(value_type.type)]
    names += ["Error"] if is_estimate else []
    names += ["Share", kind.table.count] if kind and has_count else ["Share"]
    table_rows = []
    for row in rows[:limit]:
        digits = known_digits(row.error)
        cells = [amount(row.value, value_type.unit, color=color, digits=digits)]
        cells += [error_cell(row.error, color=color)] if is_estimate else []
        cells.append(share(row.value, whole))
        cells += [count_cell(row.count, row.count_variance)] if has_count else []
        table_rows.append(columns.Row(cells, row.name or OUTSIDE, below=row.consists_of))
    text = columns.table([*names, "Handler"], table_rows, width=width, color=color)
    rest = len(rows) - limit
    return text + (f"... and {counted(rest, 'more handler')}\n" if rest > 0 else "")
