"""The change from one profile to another, as tables of text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ebpfprof.console import columns
from ebpfprof.console.text import counted, duration, printable
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.kinds import (
    count_heading,
    count_index,
    default_index,
    has_operations,
    is_moment,
    kind_words,
    place_heading,
    title,
)
from ebpfprof.export.tables.idle import hidden_line
from ebpfprof.export.tables.lengths import DIGITS_OF_LENGTH
from ebpfprof.export.tables.quantities import amount, heading
from ebpfprof.profile.delta import of_same_length
from ebpfprof.profile.evidence import are_releases_known, few_releases, is_ranked, unranked_line
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import UNKNOWN, Profile, Sample
from ebpfprof.profile.operations import operation_of
from ebpfprof.profile.wait_histogram import QUANTILES, Quantile, WaitHistogram
from ebpfprof.profile.wakers import waker_of

_Amount = Callable[[int], str]
_WAITS: Final = "waits"


@dataclass(frozen=True, slots=True)
class Change:
    """A place in the program: an operation ("" without one) and a function; its two values.

    A place has no line, since lines differ between builds. Text comes from the target unchanged:
    pass it through text.printable() before a terminal.
    """

    operation: str
    function: str
    before: int
    after: int
    waker: str = ""
    """The function that woke it, where samples are pairs (profile.wakers)."""
    counts: tuple[int, int] = (0, 0)
    """The numbers of its events, before and after."""
    is_ranked: bool = True
    """Whether both values are known well enough to be compared (profile.evidence)."""

    @property
    def difference(self) -> int:
        """How much the value grew, negative if it shrank."""
        return self.after - self.before


def changes(profile: Profile, base: Profile, index: int = -1) -> list[Change]:
    """The places whose value at `index` differs between `base` and `profile`, most grown first.

    Those without a rank come last.

    A place is an operation and its caller for kinds with operations, else a leaf function.
    """
    sums: dict[tuple[str, str, str], list[int]] = {}
    counts: dict[tuple[str, str, str], list[int]] = {}
    variances: dict[tuple[str, str, str], list[float]] = {}
    is_shown = index % len(profile.sample_types) == default_index(profile)
    for column, side in enumerate((base, profile)):
        for sample, place in _places(side):
            sums.setdefault(place, [0, 0])[column] += sample.values[index]
            counts.setdefault(place, [0, 0])[column] += sample.values[count_index(profile)]
            of_place = variances.setdefault(place, [0.0, 0.0])
            of_place[column] += sample.variance if is_shown else 0.0
    found = [
        Change(
            *(operation, function, before, after, waker),
            counts=(counts[place][0], counts[place][1]),
            is_ranked=all(map(is_ranked, (before, after), variances[place])),
        )
        for place, (before, after) in sums.items()
        for operation, function, waker in [place]
    ]
    changed = [change for change in found if change.difference]
    return sorted(
        changed,
        key=lambda one: (
            *(not one.is_ranked, -one.difference),
            *(one.function, one.operation, one.waker),
        ),
    )


def encode(
    profile: Profile, base: Profile, *, index: int | None = None, hide_idle: bool = False
) -> bytes:
    """The text of render() for a file: ASCII, of unlimited width."""
    text = render(profile, base, index=index, hide_idle=hide_idle, width=None, color=False)
    return text.encode()


def render(
    profile: Profile,
    base: Profile,
    *,
    index: int | None = None,
    hide_idle: bool = False,
    limit: int = 10,
    width: int | None,
    color: bool,
) -> str:
    """What grew and what shrank most, `limit` places each, at most `width` columns wide.

    Sums of recordings of different length are compared per second: those of `base` are scaled to
    the length of `profile`, as the flame graph does (web/flamegraph.js, baseScale). Shares are
    parts of the total of `base`. No text of the files reaches the terminal as a control character.
    Ends with a newline.
    """
    if index is None:
        index = default_index(profile)
    hidden = ""
    if hide_idle:
        (base, in_base), (profile, in_profile) = split(base), split(profile)
        lines = (
            ("Before", hidden_line(base, in_base)),
            ("After", hidden_line(profile, in_profile, has_option=True)),
        )
        hidden = "".join(f"{when}: {line}" for when, line in lines if line)
    recorded = base
    base = _of_same_length(base, profile)
    text: _Amount = partial(amount, unit=profile.sample_types[index].unit, color=color)
    before, after = (sum(sample.values[index] for sample in p.samples) for p in (base, profile))
    found = changes(profile, base, index)
    said = next(filter(None, map(few_releases, (profile, base))), "")
    if said:  # which places made others wait is not known
        found = []
    ranked = [change for change in found if change.is_ranked]
    grown = [change for change in ranked if change.difference > 0]
    shrunk = [change for change in reversed(ranked) if change.difference < 0]
    parts = [
        _sentence(profile, recorded, f"{text(before)} before, {text(after)} after", not color),
        f"Change: {_signed(after - before, text)}{_percent(after - before, before)}\n",
        _rates(profile, base, index, text),
        *_lengths(profile, recorded),
    ]
    if recorded is not base:
        length = duration(profile.duration_ns)
        parts.append(f"Values before are scaled to the {length} of the recording after.\n")
    for above, rows in (("More", grown), ("Less", shrunk)):
        if rows:
            place = place_heading(profile)
            table = _table(
                *(rows[:limit], before or after, text, place),
                has_means=_has_means(profile, base, index),
                width=width,
                color=color,
            )
            rest = len(rows) - limit
            more = f"and {counted(rest, 'more place')}\n" if rest > 0 else ""
            parts.append(f"\n{above}:\n{table}{more}")
    parts.append(unranked_line(len(found) - len(ranked)))
    if said:
        parts.append(f"{printable(said, ascii_only=not color)}\n")
    elif not found:
        parts.append("No place in the program differs.\n")
    return "".join(parts) + (f"\n{hidden}" if hidden else "")


def _of_same_length(base: Profile, profile: Profile) -> Profile:
    """`base` as if it had been recorded for as long as `profile`; itself if sums have no rate."""
    lengths = base.duration_ns, profile.duration_ns
    if is_moment(profile) or min(lengths) <= 0 or lengths[0] == lengths[1]:
        return base
    return of_same_length(base, profile)


def _rates(profile: Profile, base: Profile, index: int, text: _Amount) -> str:
    """The value per second and the mean of an event, before and after, a line each.

    A service that serves more waits more in all: only the mean says whether waits are longer.
    """
    if profile.duration_ns <= 0 or base.duration_ns <= 0 or is_moment(profile):
        return ""
    types, counts = profile.sample_types, count_index(profile)
    name, unit = types[index].type, types[index].unit
    lines = ""
    sums = [sum(sample.values[index] for sample in p.samples) for p in (base, profile)]
    if unit == "nanoseconds":
        lengths = base.duration_ns, profile.duration_ns
        rates = (round(1e9 * ns / length) for ns, length in zip(sums, lengths, strict=True))
        lines += _before_and_after(f"{heading(name)} per second", text, *rates)
    if _has_means(profile, base, index):
        numbers = [sum(sample.values[counts] for sample in p.samples) for p in (base, profile)]
        if all(numbers):
            means = (round(value / number) for value, number in zip(sums, numbers, strict=True))
            lines += _before_and_after(f"Mean {name}", text, *means)
    return lines


def _lengths(profile: Profile, base: Profile) -> Iterator[str]:
    """How long single waits were before and after, a line for each quantile that is known."""
    events = kind_words(profile).get("events", _WAITS)
    longest = "Longest wait" if events == _WAITS else f"Longest delay of {events}"
    quantiles = zip(_quantiles(base), _quantiles(profile), strict=True)
    for name, (before, after) in zip(QUANTILES, quantiles, strict=True):
        if before and after:
            texts = [duration(length.ns, DIGITS_OF_LENGTH) for length in (before, after)]
            is_same = before.least_ns < after.most_ns and after.least_ns < before.most_ns
            change = " (unchanged)" if is_same else _percent(after.ns - before.ns, before.ns)
            subject = longest if name == "max" else f"{name} of {events}"
            yield f"{subject}: {texts[0]} before, {texts[1]} after{change}\n"


def _quantiles(profile: Profile) -> list[Quantile | None]:
    """Those of QUANTILES that are known of all waits of a profile."""
    lengths = WaitHistogram.together(sample.lengths for sample in profile.samples)
    counts = count_index(profile)
    waits = sum(sample.values[counts] for sample in profile.samples)
    variance = sum(sample.count_variance for sample in profile.samples)
    quantiles = (lengths.quantile(q, waits=waits, variance=variance) for q in QUANTILES.values())
    return [quantile if quantile and quantile.is_known else None for quantile in quantiles]


def _has_means(profile: Profile, base: Profile, index: int) -> bool:
    """Whether both have events that are counted: not releases of which few were recorded."""
    types = profile.sample_types
    is_amount = index % len(types) != count_index(profile) % len(types)
    known = all(are_releases_known(side.samples) for side in (profile, base))
    return has_operations(profile) and bool(count_heading(profile)) and is_amount and known


def _before_and_after(name: str, text: _Amount, before: int, after: int) -> str:
    name = printable(name, ascii_only=True)
    return f"{name}: {text(before)} before, {text(after)} after{_percent(after - before, before)}\n"


def _places(profile: Profile) -> Iterator[tuple[Sample, tuple[str, str, str]]]:
    by_operation = has_operations(profile)
    for sample in profile.samples:
        frames = sample.frames
        if by_operation:
            name, line = operation_of(sample)
            by = waker_of(sample)
            waker = readable(operation_of(by)[1].function) if by else ""
            yield sample, (readable(name), readable(line.function), waker)
        else:
            yield sample, ("", readable(frames[0].function) if frames else UNKNOWN, "")


def _sentence(profile: Profile, base: Profile, values: str, ascii_only: bool) -> str:
    lengths = [duration(side.duration_ns) for side in (base, profile) if side.duration_ns > 0]
    length = f" ({lengths[0]} and {lengths[1]} recorded)" if len(lengths) == 2 else ""
    return printable(f"{title(profile)}: {values}{length}", ascii_only=ascii_only) + "\n"


def _signed(value: int, text: _Amount) -> str:
    return f"+{text(value)}" if value > 0 else text(value)


def _percent(change: float, whole: float) -> str:
    return f" ({100 * change / whole:+.1f}%)" if whole else ""


def _means(change: Change, text: _Amount) -> str:
    """The mean values of an event, before and after: "4.1 ms to 3.2 ms", "-" for one not known."""
    both = zip((change.before, change.after), change.counts, strict=True)
    means = [text(round(value / count)) if count > 0 else "-" for value, count in both]
    return " to ".join(means)


def _relative(change: Change) -> str:
    """The change of a place relative to its value before."""
    if not change.before:
        return "new"
    if not change.after:
        return "gone"
    percent = 100 * change.difference / abs(change.before)
    return f"{percent:+.0f}%" if abs(percent) < 1000 else f"x{change.after / change.before:.0f}"


def _table(
    changed: Sequence[Change],
    whole: int,
    text: _Amount,
    place: str,
    *,
    has_means: bool,
    width: int | None,
    color: bool,
) -> str:
    headings = ["Change", "Share", "Itself", "Before", "After"]
    headings += ["Mean"] if has_means else []
    has_operation = any(change.operation for change in changed)
    rows = []
    for row in changed:
        cells = [
            _signed(row.difference, text),
            f"{100 * row.difference / whole:+.1f}%" if whole else "",
            _relative(row),
            text(row.before),
            text(row.after),
        ]
        if has_means:
            cells.append(_means(row, text))
        if has_operation:
            cells.append(columns.operation_cell(row.operation, color=color))
        woken = f"woken by {row.waker}" if row.waker else ""
        rows.append(columns.Row(cells, row.function, below=woken))
    headings += ["Operation", place] if has_operation else ["Function"]
    return columns.table(headings, rows, left=2 if has_operation else 1, width=width, color=color)
