"""What keeps a program's objects alive, as text: the answer first, then a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ebpfprof.console import columns
from ebpfprof.console.text import counted, listed, percent, printable, quantity, wrapped
from ebpfprof.export.tables.goroutines import fitting

if TYPE_CHECKING:
    from ebpfprof.profile.references import Cut, Path, Reasons, References, RootPaths

_ANSWERS: Final = 5
_PARTS: Final = 2  # of a root, in its sentence
_LINES: Final = 30
_LEAST_SHARE: Final = 0.005
_HEADINGS: Final = ("Bytes", "Share", "Objects", "Path (type)")
_INDENT: Final = "  "
_GOROUTINES_SHOWN: Final = 5


def render(
    references: References, of_what: str, *, show_all: bool = False, width: int | None, color: bool
) -> str:
    """The roots that keep most, in words, and the tree below them; all of it if `show_all`.

    `of_what` names the process, printable. At most `width` columns; None: no limit.
    """
    lines = [head(references, of_what), *answers(references), *notes(references)]
    text = "".join(f"{wrapped(line, width) if width else line}\n" for line in lines)
    limit = None if show_all else _LINES
    rows = [
        columns.Row(
            (_bytes(path.total), percent(path.total / references.used), f"{path.total_objects:,}"),
            printable(_INDENT * depth + name_of(path)),
        )
        for depth, path in rows_of(references, limit)
    ]
    return text + "\n" + columns.table(_HEADINGS, rows, width=width, color=color)


def head(references: References, of_what: str) -> str:
    """How much is reachable; `of_what` names the process, printable."""
    return (
        f"{_bytes(references.used)} in {references.objects:,} objects are reachable in {of_what}:"
    )


def answers(references: References) -> list[str]:
    """A sentence for each of the roots that keep most."""
    return [_answer(root, references.used) for root in references.roots[:_ANSWERS]]


def render_reasons(reasons: Reasons, *, width: int | None) -> str:
    """Why objects are alive: their paths, and what each reference would free if it were cut."""
    if not reasons.objects:
        return f"{printable(reasons.asked)}: no reachable object.\n"
    lines = [
        f"{printable(reasons.asked)}: {counted(reasons.objects, 'reachable object')}, "
        f"{_bytes(reasons.used)}; with all that only they keep, "
        f"{_bytes(reasons.freed)} in {counted(reasons.freed_objects, 'object')}.",
        "",
        "Paths, by the reference that reached each object first:",
    ]
    for names, objects, used in reasons.paths[:_ANSWERS]:
        lines.append(f"  {_bytes(used)} in {counted(objects, 'object')}:")
        lines += [f"    {printable(name)}" for name in names]
    rest = len(reasons.paths) - _ANSWERS
    if rest > 0:
        lines.append(f"  and {counted(rest, 'more path')}")
    for example in reasons.examples:
        lines += ["", f"For example, the object at {example.address:#x} ({_bytes(example.used)}):"]
        lines += [f"  {_cut(cut)}" for cut in example.cuts]
    return "".join(fitting(line, width) for line in lines)


def _cut(cut: Cut) -> str:
    times = f", {cut.repeated:,} in a row" if cut.repeated > 1 else ""
    freed = (
        f"without it, {_bytes(cut.freed)} in {counted(cut.freed_objects, 'object')} would be freed"
        if cut.freed
        else "others keep the same"
    )
    return printable(f"{_joined(cut.label, cut.type)}{times}: {freed}")


def _answer(root: RootPaths, whole: int) -> str:
    path = root.paths
    name = _joined(path.label, path.type)
    if len(root.goroutines) > 1:
        name = f"{counted(len(root.goroutines), 'goroutine')}: {name}"
    if not path.type:  # without a name, what it leads to may tell
        most = next((p.type for p in path.below if p.type and 2 * p.total > path.total), "")
        name += f", with {most}," if most else ""
    parts = [_part(part, above) for above, part in _largest(path)]
    what = f": {listed(parts)}" if parts else ""
    return printable(f"{name} keeps {_bytes(path.total)} ({percent(path.total / whole)}){what}")


def _largest(root: Path) -> list[tuple[Path, Path]]:
    """The places below a root with the most bytes of their own, each with that above it."""
    places = [
        (above, path)
        for above in root.all()
        for path in above.below
        if path.used >= _LEAST_SHARE * root.total
    ]
    return sorted(places, key=lambda pair: -pair[1].used)[:_PARTS]


def _part(path: Path, above: Path) -> str:
    kind = path.type or "unknown objects"
    where = above.type.removeprefix("*") or above.label
    field = path.label if path.label.startswith(".") else ""
    below = f" below {where}{field}" if field else ""
    return f"{path.objects:,} {kind} ({_bytes(path.used)}){below}"


def notes(references: References) -> list[str]:
    """Sentences about goroutines that can never continue, and about what is missing."""
    lines = []
    if leaked := references.leaked.ids:
        shown = ", ".join(map(str, leaked[:_GOROUTINES_SHOWN]))
        lines.append(
            f"{counted(len(leaked), 'goroutine')} can never continue: nothing that can run refers "
            f"to what they wait for. Only they keep {_bytes(references.leaked.used)}. Ids: {shown}"
            f"{', ...' if len(leaked) > _GOROUTINES_SHOWN else ''}; dump shows their stacks."
        )
    if references.changed:
        lines.append(
            f"{_bytes(references.changed_bytes)} in {counted(references.changed, 'object')} belong "
            "to no path: their references changed while they were read."
        )
    if references.left_out:
        lines.append(
            f"{_bytes(references.left_out)} of the heap are missing: beyond the 32 GiB that are "
            "read, or in spans that contradict each other."
        )
    if references.stacks_missed:
        lines.append(
            f"The stacks of {counted(references.stacks_missed, 'goroutine')} could not be read."
        )
    return lines


def rows_of(references: References, limit: int | None) -> Iterator[tuple[int, Path]]:
    """The places to show, each after that above it: those with the most bytes, if not all."""
    least = 0
    if limit is not None:
        totals = sorted(
            (path.total for root in references.roots for path in root.paths.all()), reverse=True
        )
        least = totals[min(limit, len(totals)) - 1] if totals else 0
    stack = [(0, root.paths) for root in reversed(references.roots)]
    shown = 0
    while stack and (limit is None or shown < limit):
        depth, path = stack.pop()
        if path.total >= least:
            shown += 1
            yield depth, path
            stack += [(depth + 1, below) for below in reversed(path.below)]


def name_of(path: Path) -> str:
    """A place as it is shown, not yet printable."""
    return _joined(path.label, path.type)


def _joined(label: str, type_name: str) -> str:
    return f"{label} ({type_name})" if type_name and label else label or type_name or "?"


def _bytes(value: float) -> str:
    return quantity(value, "bytes")
