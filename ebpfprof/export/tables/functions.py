"""Any profile as a table for people: which functions its values are charged to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ebpfprof.console.text import counted, printable, quantity
from ebpfprof.export.frames import UNKNOWN
from ebpfprof.export.tables.columns import fit, rendered
from ebpfprof.profile.model import Profile, Sample

_MAX_NAME = 512
_MIN_ROOM = 24
_UNLIMITED = 1 << 13


@dataclass(frozen=True, slots=True)
class FunctionSums:
    """A function: a value in itself, and in itself and all that it called.

    Text is as the target has it: not fit for a terminal before text.printable().
    """

    function: str
    file: str
    own: int
    total: int


def function_sums(samples: Iterable[Sample], index: int = -1) -> list[FunctionSums]:
    """All functions, by the value at `index`, those with the most in themselves first."""
    sums: dict[tuple[str, str], list[int]] = {}
    for sample in samples:
        value = sample.values[index]
        frames = [frame for location in sample.locations for frame in location.frames]
        keys = [(frame.function, frame.file) for frame in frames] or [(UNKNOWN, "")]
        for key in dict.fromkeys(keys):  # once, however often it called itself
            sums.setdefault(key, [0, 0])[1] += value
        sums[keys[0]][0] += value
    rows = [FunctionSums(*key, own=own, total=total) for key, (own, total) in sums.items()]
    return sorted(rows, key=lambda row: (-row.own, -row.total, row.function, row.file))


def render(
    profile: Profile, *, index: int = -1, limit: int = 15, width: int | None, color: bool
) -> str:
    """The first functions as a table of at most `width` columns; None: as many as it takes.

    Without `color` the text is plain ASCII. Nothing that the target says reaches the terminal
    as a control character. Ends with a newline.
    """
    # rich takes some 30 ms to import: only who prints a table pays for it.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    rows = function_sums(profile.samples, index)
    whole = sum(sample.values[index] for sample in profile.samples)
    shown = [row for row in rows[:limit] if row.own]
    value_type = profile.sample_types[index]

    def amount(value: int) -> str:
        return printable(quantity(value, value_type.unit)[:_MIN_ROOM], ascii_only=not color)

    def share(value: int) -> str:
        return f"{100 * value / whole:.1f}%" if whole else ""

    headings = (heading(value_type.type), "Share", "With callees", "Share", "Function")
    cells = [(amount(r.own), share(r.own), amount(r.total), share(r.total)) for r in shown]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for text in headings:
        justify: Literal["left", "right"] = "left" if text == headings[-1] else "right"
        table.add_column(Text(text), justify=justify, no_wrap=True)
    columns = zip(headings, *cells, strict=False)
    taken = sum(max(map(cell_len, column)) + 2 for column in columns)
    room = None if width is None else max(width - taken, _MIN_ROOM)
    for row, numbers in zip(shown, cells, strict=True):
        name = printable(row.function[-_MAX_NAME:], ascii_only=not color)
        table.add_row(*(Text(number) for number in numbers), Text(fit(name, room, cell_len)))
    text = rendered(table, width=taken + (room or _UNLIMITED), color=color)
    rest = sum(1 for row in rows if row.own) - len(shown)
    more = f"; {counted(rest, 'more function')}" if rest else ""
    return f"{text}{amount(whole)} in all{more}\n"


def heading(type_name: str) -> str:
    """The name of a sample type as the head of a column: "Inuse space", "CPU"."""
    if type_name == "cpu":
        return "CPU"
    words = printable(type_name[:_MIN_ROOM], ascii_only=True).replace("_", " ")
    return words[:1].upper() + words[1:]
