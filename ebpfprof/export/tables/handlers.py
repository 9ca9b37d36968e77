"""A profile by handler: the sums of functions that servers called, and what they consist of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.console import columns
from ebpfprof.console.text import counted, percent, printable
from ebpfprof.export.kinds import default_index
from ebpfprof.export.tables.lengths import length_cell
from ebpfprof.export.tables.quantities import (
    amount,
    count_cell,
    error_cell,
    heading,
    known_digits,
    rounded,
    share,
)
from ebpfprof.profile.evidence import few_releases, is_ranked, is_unknown_release
from ebpfprof.profile.handlers import handler_label
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.operations import operation_of
from ebpfprof.profile.served_requests import served_requests
from ebpfprof.profile.wait_groups import NETWORK, group_of_running, group_of_wait
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profilers.registry import find_kind

OUTSIDE: Final = "(outside of handlers)"
_UNRECORDED: Final = "(releases not recorded)"
_LEAST_PART: Final = 0.01
_PARTS: Final = 5
_PEERS: Final = 3
_WHOLE: Final = 100
"""From this rate on, no parts of a request are shown."""
_REST: Final = (OUTSIDE, _UNRECORDED)
_HANDLER: Final = "Handler"
_LENGTHS: Final = ("p50", "p99", "Max")
# From the widest to the narrowest table.
_COLUMNS_OF_LENGTHS: Final = (_LENGTHS, ("p99", "Max"), ("p99",), ())


@dataclass(slots=True)
class HandlerSums:
    """The sums of all samples of a handler; `name` as handler_name() has it.

    `count` is the sum of their first values, `value` of those that are shown, `variance` that of
    `value`. `parts` has `value` by group (profile.wait_groups), if the profile's kind has groups.
    `lengths` has the waits of the handler by how long they were, `peers` in how many samples its
    goroutines waited for which peer of the network, in the operations of the profile.
    """

    name: str
    count: int = 0
    value: int = 0
    variance: float = 0.0
    count_variance: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)
    lengths: WaitHistogram = NO_LENGTHS
    peers: Counter[str] = field(default_factory=Counter)

    @property
    def is_handler(self) -> bool:
        """Whether it is a handler, rather than the rest."""
        return self.name not in _REST

    @property
    def has_count(self) -> bool:
        """Whether `count` says anything: nobody knows how many releases were not recorded."""
        return self.name != _UNRECORDED

    @property
    def error(self) -> float:
        """The standard error of `value`, as a part of it; 0 for a value that is exact."""
        return math.sqrt(self.variance) / self.value if self.value else 0.0

    @property
    def consists_of(self) -> str:
        """Its largest parts, in words: "locks 61 %, network 39 %"; "" if there are none."""
        largest = self.parts.most_common(_PARTS)
        shown = [(name, part / self.value) for name, part in largest if self.value > 0]
        return ", ".join(
            f"{name} {percent(part)}{self._peer_words if name == NETWORK else ''}"
            for name, part in shown
            if part >= _LEAST_PART
        )

    @property
    def _peer_words(self) -> str:
        """The peers with the most samples: " (10.0.0.7:5432 in 9 of 12 samples)"."""
        if not self.peers:
            return ""
        first = self.peers.most_common(_PEERS)
        words = [f"{peer} in {samples}" for peer, samples in first]
        words[0] += f" of {counted(self.peers.total(), 'sample')}"
        return f" ({', '.join(words)})"

    @property
    def count_cell(self) -> str:
        """The count, with as many digits as are known; "-" for releases that were not recorded."""
        return count_cell(self.count, self.count_variance) if self.has_count else "-"

    def length_cell(self, quantile: str, *, color: bool) -> str:
        """One of QUANTILES of the lengths of its waits; "-" if that is not known well enough."""
        return length_cell(
            self.lengths, quantile, waits=self.count, variance=self.count_variance, color=color
        )


def handler_name(sample: Sample) -> str:
    """The name of a sample's handler, or in parentheses why it has none."""
    if label := handler_label(sample):
        return label
    return _UNRECORDED if is_unknown_release(sample) else OUTSIDE


def handler_sums(profile: Profile, index: int = -1) -> list[HandlerSums]:
    """The sums by the label HANDLER, the largest value at `index` first; those of none last."""
    group_of = grouping(profile)
    sums: dict[str, HandlerSums] = {}
    lengths: dict[str, list[WaitHistogram]] = {}
    on_network: set[tuple[str, str]] = set()
    for sample in profile.samples:
        name = handler_name(sample)
        total = sums.setdefault(name, HandlerSums(name))
        if sample.lengths:
            lengths.setdefault(name, []).append(sample.lengths)
        total.count += sample.values[0]
        total.value += sample.values[index]
        total.variance += sample.variance
        total.count_variance += sample.count_variance
        if group_of:
            group = group_of(sample)
            total.parts[group] += sample.values[index]
            if group == NETWORK and profile.peers:
                on_network.add((name, operation_of(sample)[0]))
    for seen in profile.peers:
        if (seen.handler, seen.operation) in on_network:
            sums[seen.handler].peers[seen.peer] += seen.samples
    for name, parts in lengths.items():
        sums[name].lengths = WaitHistogram.together(parts)
    return sorted(sums.values(), key=lambda row: (not row.is_handler, -row.value, row.name))


def grouping(profile: Profile) -> Callable[[Sample], str] | None:
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

    Below each handler is what its time consists of. Where quantiles of the lengths of waits are
    known, there are as many as fit. Releases of locks have no rows if too few were recorded: the
    text says how to record them. Below the table of a block profile is how many requests of HTTP/1
    there were. `index` selects the value, by default that
    which the profile's kind shows. For `width` and `color` see columns.table(), which makes text
    of the target printable. Ends with a newline.
    """
    kind = find_kind(profile.kind)
    if kind and index is None:
        profile = kind.in_tables(profile)
    rate = _requests_line(profile) if index is None else ""
    if hide_idle:
        profile, _ = split(profile)
    shown = default_index(profile) if index is None else index
    rows = handler_sums(profile, shown)
    if not any(row.is_handler for row in rows):
        return "No handler is on any stack.\n"
    value_type = profile.sample_types[shown]
    unit = value_type.unit
    whole = sum(row.value for row in rows)
    if said := few_releases(profile):
        text = amount(whole, unit, color=color)
        return f"{text} of waiting for locks. {printable(said, ascii_only=not color)}\n"
    has_count = kind is not None and kind.has_amount and bool(kind.table.count)
    first = rows[:limit]
    are_known = any(
        row.length_cell(quantile, color=color) != "-" for row in first for quantile in _LENGTHS
    )
    value = kind.table.value if kind and index is None else heading(value_type.type)
    counts = [kind.table.count] if kind and has_count else []
    for lengths in _COLUMNS_OF_LENGTHS if are_known and index is None else ((),):
        names = [value, "Share", *counts, *lengths]
        if any(row.variance for row in first):
            names.insert(1, "Error")
        cells = [_row(row, names, value, unit=unit, whole=whole, color=color) for row in first]
        if columns.fits([*names, _HANDLER], cells, width=width):
            break
    text = columns.table([*names, _HANDLER], cells, width=width, color=color)
    rest = len(rows) - limit
    return text + (f"... and {counted(rest, 'more handler')}\n" if rest > 0 else "") + rate


def _requests_line(profile: Profile) -> str:
    """How many requests of HTTP/1 there were, a line; "" if that is not known."""
    served = served_requests(profile)
    is_known = served.count > 0 and is_ranked(served.count, served.variance)
    if not is_known or profile.duration_ns <= 0:
        return ""
    rate = rounded(served.count / (profile.duration_ns / 1e9), served.error)
    text = f"{rate:,.0f}" if rate >= _WHOLE else f"{rate:.3g}"
    return f"HTTP/1 requests of all handlers: at least {text} a second.\n"


def _row(
    row: HandlerSums,
    headings: Sequence[str],
    value: str,
    *,
    unit: str,
    whole: int,
    color: bool,
) -> columns.Row:
    """The row of a handler, with a cell for each of the headings, of which `value` is the first."""

    def cell(name: str) -> str:
        if name == value:
            return amount(row.value, unit, color=color, digits=known_digits(row.error))
        if name == "Error":
            return error_cell(row.error, color=color)
        if name == "Share":
            return share(row.value, whole)
        return row.length_cell(name, color=color) if name in _LENGTHS else row.count_cell

    return columns.Row([cell(name) for name in headings], row.name, below=row.consists_of)
