"""A CPU profile as a table for people: which functions used the processor."""

from collections.abc import Iterable
from dataclasses import dataclass

from ebpfprof.export.table import fit, rendered
from ebpfprof.profile import Profile, Sample
from ebpfprof.text import duration, printable

_MAX_NAME = 512
_MIN_ROOM = 24
_UNLIMITED = 1 << 13
_HEADINGS = ("CPU", "Share", "With callees", "Share", "Function")
_NOTHING = "Nothing was recorded: the program used no CPU time.\n"


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function: CPU time in itself, and in itself and all that it called.

    Text is as the target has it: not fit for a terminal before text.printable().
    """

    function: str
    file: str
    own_ns: int
    total_ns: int


def function_rows(samples: Iterable[Sample]) -> list[FunctionRow]:
    """All functions of a CPU profile, those that used most themselves first."""
    sums: dict[tuple[str, str], list[int]] = {}
    for sample in samples:
        ns = sample.values[-1]
        frames = [frame for location in sample.locations for frame in location.frames]
        keys = [(frame.function, frame.file) for frame in frames]
        for key in dict.fromkeys(keys):  # once, however often it called itself
            sums.setdefault(key, [0, 0])[1] += ns
        if keys:
            sums[keys[0]][0] += ns
    rows = [FunctionRow(*key, own_ns=own, total_ns=total) for key, (own, total) in sums.items()]
    return sorted(rows, key=lambda row: (-row.own_ns, -row.total_ns, row.function, row.file))


def render(profile: Profile, *, limit: int = 15, width: int | None, color: bool) -> str:
    """The first functions as a table of at most `width` columns; None: as many as it takes.

    Without `color` the text is plain ASCII. Nothing that the target says reaches the terminal
    as a control character. Ends with a newline.
    """
    # rich takes some 30 ms to import: only who prints a table pays for it.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    rows = function_rows(profile.samples)
    all_ns = sum(sample.values[-1] for sample in profile.samples)
    if not rows or not all_ns:
        return _NOTHING

    def share(ns: int) -> str:
        return f"{100 * ns / all_ns:.1f}%"

    shown = [row for row in rows[:limit] if row.own_ns]
    cells = [
        (duration(r.own_ns), share(r.own_ns), duration(r.total_ns), share(r.total_ns))
        for r in shown
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in _HEADINGS:
        table.add_column(
            heading, justify="left" if heading == _HEADINGS[-1] else "right", no_wrap=True
        )
    columns = zip(_HEADINGS, *cells, strict=False)
    taken = sum(max(map(cell_len, column)) + 2 for column in columns)
    room = None if width is None else max(width - taken, _MIN_ROOM)
    for row, numbers in zip(shown, cells, strict=True):
        name = printable(row.function[-_MAX_NAME:], ascii_only=not color)
        table.add_row(*(Text(number) for number in numbers), Text(fit(name, room, cell_len)))
    text = rendered(table, width=taken + (room or _UNLIMITED), color=color)
    total = f"{duration(all_ns)} in all"
    rest = sum(1 for row in rows if row.own_ns) - len(shown)
    return text + (f"{total}; {rest} more functions\n" if rest else f"{total}\n")
