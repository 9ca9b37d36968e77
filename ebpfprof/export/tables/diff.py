"""The change from one profile to another, as tables of text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ebpfprof.console.text import counted, duration, printable
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.kinds import default_index, has_operations, place_heading, title
from ebpfprof.export.tables import columns
from ebpfprof.export.tables.idle import hidden_line
from ebpfprof.export.tables.quantities import amount
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import UNKNOWN, Profile, Sample
from ebpfprof.profile.operations import operation_of
from ebpfprof.profile.wakers import waker_of

_Amount = Callable[[int], str]


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

    @property
    def difference(self) -> int:
        """How much the value grew, negative if it shrank."""
        return self.after - self.before


def changes(profile: Profile, base: Profile, index: int = -1) -> list[Change]:
    """The places whose value at `index` differs between `base` and `profile`, most grown first.

    A place is an operation and its caller for kinds with operations, else a leaf function.
    """
    sums: dict[tuple[str, str, str], list[int]] = {}
    for column, each in enumerate((base, profile)):
        for sample, place in _places(each):
            sums.setdefault(place, [0, 0])[column] += sample.values[index]
    found = [
        Change(operation, function, before, after, waker)
        for (operation, function, waker), (before, after) in sums.items()
    ]
    changed = [each for each in found if each.difference]
    return sorted(
        changed, key=lambda each: (-each.difference, each.function, each.operation, each.waker)
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

    Shares are parts of the total of `base`. No text of the files reaches the terminal as a control
    character. Ends with a newline.
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
    text: _Amount = partial(amount, unit=profile.sample_types[index].unit, color=color)
    before, after = (sum(each.values[index] for each in p.samples) for p in (base, profile))
    found = changes(profile, base, index)
    grown = [each for each in found if each.difference > 0]
    shrunk = [each for each in reversed(found) if each.difference < 0]
    parts = [
        _sentence(profile, base, f"{text(before)} before, {text(after)} after", not color),
        f"Change: {_signed(after - before, text)}{_percent(after - before, before)}\n",
    ]
    for heading, rows in (("More", grown), ("Less", shrunk)):
        if rows:
            place = place_heading(profile)
            table = _table(rows[:limit], before or after, text, place, width=width, color=color)
            rest = len(rows) - limit
            more = f"and {counted(rest, 'more place')}\n" if rest > 0 else ""
            parts.append(f"\n{heading}:\n{table}{more}")
    if not found:
        parts.append("No place in the program differs.\n")
    return "".join(parts) + (f"\n{hidden}" if hidden else "")


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
    lengths = [duration(each.duration_ns) for each in (base, profile) if each.duration_ns > 0]
    length = f" ({lengths[0]} and {lengths[1]} recorded)" if len(lengths) == 2 else ""
    return printable(f"{title(profile)}: {values}{length}", ascii_only=ascii_only) + "\n"


def _signed(value: int, text: _Amount) -> str:
    return f"+{text(value)}" if value > 0 else text(value)


def _percent(change: int, whole: int) -> str:
    return f" ({100 * change / whole:+.1f}%)" if whole else ""


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
    width: int | None,
    color: bool,
) -> str:
    headings = ["Change", "Share", "Itself", "Before", "After"]
    has_operation = any(each.operation for each in changed)
    rows = []
    for each in changed:
        cells = [
            _signed(each.difference, text),
            f"{100 * each.difference / whole:+.1f}%" if whole else "",
            _relative(each),
            text(each.before),
            text(each.after),
        ]
        if has_operation:
            cells.append(columns.operation_cell(each.operation, color=color))
        woken = f"woken by {each.waker}" if each.waker else ""
        rows.append(columns.Row(cells, each.function, below=woken))
    headings += ["Operation", place] if has_operation else ["Function"]
    return columns.table(headings, rows, left=2 if has_operation else 1, width=width, color=color)
