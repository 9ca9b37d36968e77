"""A profile as a table of functions: its own value (flat), and that with all it called (cum)."""

from collections.abc import Iterable
from dataclasses import dataclass

from ebpfprof.console.text import counted
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.tables import columns
from ebpfprof.export.tables.quantities import amount, heading, share
from ebpfprof.profile.model import UNKNOWN, Profile, Sample

_HEADINGS = ("Share", "Cum", "Share", "Function")


@dataclass(frozen=True, slots=True)
class FunctionSums:
    """A function: `own` is its own value (flat), `total` that with all it called (cum).

    Text comes from the target unchanged: pass it through text.printable() before a terminal.
    """

    function: str
    file: str
    own: int
    total: int


def function_sums(samples: Iterable[Sample], index: int = -1) -> list[FunctionSums]:
    """All functions with their values at `index`, largest own value first."""
    sums: dict[tuple[str, str], list[int]] = {}
    for sample in samples:
        value = sample.values[index]
        keys = [(readable(frame.function), frame.file) for frame in sample.frames] or [
            (UNKNOWN, "")
        ]
        for key in dict.fromkeys(keys):  # once for a recursive function, too
            sums.setdefault(key, [0, 0])[1] += value
        sums[keys[0]][0] += value
    rows = [FunctionSums(*key, own=own, total=total) for key, (own, total) in sums.items()]
    return sorted(rows, key=lambda row: (-row.own, -row.total, row.function, row.file))


def render(
    profile: Profile,
    *,
    index: int = -1,
    value_heading: str = "",
    limit: int = 15,
    width: int | None,
    color: bool,
) -> str:
    """The functions with the largest values at `index`, as a table (see columns.table()).

    Without `value_heading`, the heading of the column is the sample type.
    """
    found = function_sums(profile.samples, index)
    whole = sum(sample.values[index] for sample in profile.samples)
    shown = [each for each in found[:limit] if each.own]
    value_type = profile.sample_types[index]

    def cells(value: int) -> tuple[str, str]:
        return amount(value, value_type.unit, color=color), share(value, whole)

    first = value_heading or heading(value_type.type)
    rows = [columns.Row((*cells(each.own), *cells(each.total)), each.function) for each in shown]
    text = columns.table((first, *_HEADINGS), rows, width=width, color=color)
    rest = sum(1 for each in found if each.own) - len(shown)
    more = f"; {counted(rest, 'more function')}" if rest else ""
    return f"{text}{amount(whole, value_type.unit, color=color)} in all{more}\n"
