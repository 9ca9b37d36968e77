"""A profile as the text that net/http/pprof answers with ?debug=1."""

from collections.abc import Callable, Sequence

from ebpfprof.console.text import printable
from ebpfprof.export.go_quotes import shortened
from ebpfprof.profile.model import Profile, Sample

_TAB = 8


def text(
    profile: Profile,
    head: Sequence[str],
    offset_of: Callable[[int], int | None],
    type_argument_lists: int = 0,
) -> str:
    """The profile in the legacy format (runtime/pprof/pprof.go, writeProfileInternal).

    `head` are its first lines (Endpoint.text). Before the @ stand the values of a sample, the last
    one first: delay and count in a block profile. Go writes delays in cycles, whose number in a
    second stands in the head; ours are nanoseconds. Behind the @ stands the return address of each
    physical frame; Go writes one for each inlined call, too, which we don't know. `offset_of` says
    how far behind its function's beginning an address lies; None if that is not known. In names,
    `type_argument_lists` become "[...]" (runtime/symtab.go, Frames.Next): see shortened().
    """
    lines = list(head)
    for sample in sorted(profile.samples, key=lambda sample: -sample.values[-1]):
        values = " ".join(str(value) for value in reversed(sample.values))
        pcs = "".join(f" {location.address + 1:#x}" for location in sample.locations)
        lines.append(f"{values} @{pcs}")
        lines += aligned(frame_rows(sample, offset_of, type_argument_lists))
        lines.append("")
    return "\n".join(lines) + "\n"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, with tabs between the cells so that columns stand below each other.

    As Go's text/tabwriter with a minimal width of 1, tabs of 8 and a padding of 1: a column is as
    wide as the widest cell of the rows around that have it, and the last cell of a row is in none.
    """
    lines = [""] * len(rows)
    column = 0
    while any(len(row) > column for row in rows):
        for first, last in _runs(rows, column):
            width = max(len(row[column]) for row in rows[first:last]) + 1
            width = -(-width // _TAB) * _TAB
            for index in range(first, last):
                cell = rows[index][column]
                lines[index] += cell + "\t" * -(-(width - len(cell)) // _TAB)
        for index, row in enumerate(rows):
            if len(row) == column + 1:
                lines[index] += row[column]
        column += 1
    return lines


def _runs(rows: Sequence[Sequence[str]], column: int) -> list[tuple[int, int]]:
    """Where rows follow each other that have a cell behind this one: first and past the last."""
    runs: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        if len(row) > column + 1:
            if runs and runs[-1][1] == index:
                runs[-1] = (runs[-1][0], index + 1)
            else:
                runs.append((index, index + 1))
    return runs


def frame_rows(
    sample: Sample, offset_of: Callable[[int], int | None], lists: int
) -> list[list[str]]:
    """The cells of a line for each frame: see text()."""
    rows = []
    for location in sample.locations:
        pc = f"{location.address:#x}"
        offset = offset_of(location.address)
        behind = "" if offset is None else f"+{offset:#x}"
        rows += [
            [
                *("#", pc, printable(shortened(f.function, lists)) + behind),
                f"{printable(f.file)}:{f.line}",
            ]
            for f in location.frames
        ] or [["#", pc]]
    return rows
