"""What has changed from one profile to another, as tables for people."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ebpfprof.console.text import counted, duration, printable, quantity
from ebpfprof.export.frames import UNKNOWN
from ebpfprof.export.json_profile import title
from ebpfprof.export.tables.columns import fit, rendered
from ebpfprof.export.tables.waits import caller, hidden_line, operation
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Profile, Sample

_MAX_NAME = 512
_MIN_ROOM = 24
_OPERATION_ROOM = 40
_UNLIMITED = 10 * _MAX_NAME  # printable() makes at most ten characters of one


@dataclass(frozen=True, slots=True)
class Change:
    """A place in both profiles: an operation ("" if it is no wait) and a function, its values.

    Lines are no part of it: the next build of a program has others. Text is as the target has
    it: not fit for a terminal before text.printable().
    """

    operation: str
    function: str
    before: int
    after: int

    @property
    def amount(self) -> int:
        """How much there is more of it, negative if it is less."""
        return self.after - self.before


def changes(profile: Profile, base: Profile, index: int = -1) -> list[Change]:
    """All that differs from `base` to `profile`, by the value at `index`, what grew most first.

    Waits are told apart by operation and caller, samples of other profiles by the function they
    were taken in.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for column, each in enumerate((base, profile)):
        for sample, place in _places(each):
            sums.setdefault(place, [0, 0])[column] += sample.values[index]
    found = [Change(*place, *values) for place, values in sums.items()]
    changed = [each for each in found if each.amount]
    return sorted(changed, key=lambda each: (-each.amount, each.function, each.operation))


def encode(profile: Profile, base: Profile, *, index: int = -1, hide_idle: bool = False) -> bytes:
    """The text of render() in ASCII, as wide as it takes, as a file."""
    text = render(profile, base, index=index, hide_idle=hide_idle, width=None, color=False)
    return text.encode()


def render(
    profile: Profile,
    base: Profile,
    *,
    index: int = -1,
    hide_idle: bool = False,
    limit: int = 10,
    width: int | None,
    color: bool,
) -> str:
    """What grew and what shrank most, `limit` places each, at most `width` columns wide.

    Shares are those of the whole of `base`. Nothing that the files say reaches the terminal as a
    control character. Ends with a newline.
    """
    unit = profile.sample_types[index].unit
    hidden = ""
    if hide_idle:
        (base, in_base), (profile, in_profile) = split(base), split(profile)
        lines = (("Before", hidden_line(in_base)), ("After", hidden_line(in_profile)))
        hidden = "".join(f"{when}: {line}" for when, line in lines if line)

    def amount(value: int) -> str:
        return printable(quantity(value, unit)[:_MIN_ROOM], ascii_only=not color)

    before, after = (sum(each.values[index] for each in p.samples) for p in (base, profile))
    found = changes(profile, base, index)
    grown = [each for each in found if each.amount > 0]
    shrunk = [each for each in reversed(found) if each.amount < 0]
    parts = [
        _sentence(profile, base, f"{amount(before)} before, {amount(after)} after", not color),
        f"Change: {_signed(after - before, amount)}{_percent(after - before, before)}\n",
    ]
    for heading, rows in (("More", grown), ("Less", shrunk)):
        if rows:
            table = _table(rows[:limit], before or after, amount, width=width, color=color)
            rest = len(rows) - limit
            more = f"and {counted(rest, 'more place')}\n" if rest > 0 else ""
            parts.append(f"\n{heading}:\n{table}{more}")
    if not found:
        parts.append("No place in the program differs.\n")
    return "".join(parts) + (f"\n{hidden}" if hidden else "")


def _places(profile: Profile) -> Iterator[tuple[Sample, tuple[str, str]]]:
    for sample in profile.samples:
        frames = [frame for location in sample.locations for frame in location.frames]
        if profile.kind in ("block", "mutex", "open"):
            yield sample, (operation(frames), caller(frames).function)
        else:
            yield sample, ("", frames[0].function if frames else UNKNOWN)


def _sentence(profile: Profile, base: Profile, values: str, ascii_only: bool) -> str:
    lengths = [duration(each.duration_ns) for each in (base, profile) if each.duration_ns > 0]
    length = f" ({lengths[0]} and {lengths[1]} recorded)" if len(lengths) == 2 else ""
    return printable(f"{title(profile)}: {values}{length}", ascii_only=ascii_only) + "\n"


def _signed(value: int, amount: Callable[[int], str]) -> str:
    return f"+{amount(value)}" if value > 0 else amount(value)


def _percent(change: int, whole: int) -> str:
    return f" ({100 * change / whole:+.1f}%)" if whole else ""


def _relative(change: Change) -> str:
    """How a place has changed by itself."""
    if not change.before:
        return "new"
    if not change.after:
        return "gone"
    percent = 100 * change.amount / abs(change.before)
    return f"{percent:+.0f}%" if abs(percent) < 1000 else f"x{change.after / change.before:.0f}"


def _table(
    rows: Sequence[Change],
    whole: int,
    amount: Callable[[int], str],
    *,
    width: int | None,
    color: bool,
) -> str:
    # rich takes some 30 ms to import: only who prints a table pays for it.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    def safe(text: str, room: int | None) -> str:
        return fit(printable(text[-_MAX_NAME:], ascii_only=not color), room, cell_len)

    headings = ["Change", "Share", "Itself", "Before", "After"]
    cells = [
        [
            _signed(row.amount, amount),
            f"{100 * row.amount / whole:+.1f}%" if whole else "",
            _relative(row),
            amount(row.before),
            amount(row.after),
        ]
        for row in rows
    ]
    if any(row.operation for row in rows):
        headings.append("Operation")
        for row, fixed in zip(rows, cells, strict=True):
            fixed.append(safe(row.operation, _OPERATION_ROOM))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        justify: Literal["left", "right"] = "left" if heading == "Operation" else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    table.add_column("Called from" if "Operation" in headings else "Function", no_wrap=True)
    taken = sum(max(map(cell_len, column)) + 2 for column in zip(headings, *cells, strict=True))
    room = None if width is None else max(width - taken, _MIN_ROOM)
    for row, fixed in zip(rows, cells, strict=True):
        table.add_row(*(Text(cell) for cell in fixed), Text(safe(row.function, room)))
    return rendered(table, width=taken + (room or _UNLIMITED), color=color)
