"""What a program's memory consists of, as text for 80 columns and 24 lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console import columns
from ebpfprof.console.text import counted, duration, percent, printable, quantity

if TYPE_CHECKING:
    from ebpfprof.profile.memory import MemoryParts, SizeClass

_SIZES: Final = 5
_TYPES: Final = 3
_HEADINGS: Final = ("Used", "Share", "Objects", "Free", "No pointers", "Size of an object")


def render(
    memory: MemoryParts,
    of_what: str,
    now_s: float,
    *,
    show_all: bool = False,
    width: int | None,
    color: bool,
) -> str:
    """The parts of the memory, then the sizes and the types that take most; all if `show_all`.

    `of_what` names the process, printable. At most `width` columns; None: no limit.
    """
    limit = (1 << 20) if show_all else None
    parts = [f"Memory of {of_what}:\n", *_lines(memory, now_s), "\n"]
    parts.append(_sizes(memory, limit or _SIZES, width=width, color=color))
    parts += ["\n", _types(memory, limit or _TYPES, width=width, color=color)]
    return "".join(parts)


def _lines(memory: MemoryParts, now_s: float) -> list[str]:
    statistics = memory.statistics
    held = sum(size_class.held for size_class in statistics.classes)
    waste = sum(size_class.waste for size_class in statistics.classes)
    runtime = statistics.mapped - statistics.heap_mapped - statistics.stacks_mapped
    free = f"{_bytes(waste)} of it free slots" if held else "no spans"
    rows = [
        ("Objects", f"{_bytes(statistics.allocated)} in {statistics.objects:,} objects"),
        (
            "Heap",
            f"{_bytes(statistics.heap_in_use)} in use, {free}; {_bytes(statistics.idle)} idle",
        ),
        ("Besides", f"stacks {_bytes(statistics.stacks_in_use)}, the runtime {_bytes(runtime)}"),
        (
            "In all",
            f"{_bytes(statistics.mapped)}, {_bytes(statistics.released)} of it returned to the "
            "kernel",
        ),
        ("GC", _collections(memory, now_s)),
        *([("GC time", _time(memory))] if statistics.collector.cycles else ()),
        ("Next GC", _pace(memory)),
    ]
    if not statistics.is_settled:
        rows.append(("", "read during garbage collections: sums may be off by one collection"))
    return [f"  {name:<8} {text}\n" for name, text in rows]


def _collections(memory: MemoryParts, now_s: float) -> str:
    gc = memory.statistics.collector
    if not gc.cycles:
        return "no collection yet"
    ago = max(0.0, now_s * 1e9 - gc.last_unix_ns)
    forced = f" ({gc.forced} forced)" if gc.forced else ""
    return f"{counted(gc.cycles, 'collection')}{forced}, the last {duration(ago)} ago"


def _time(memory: MemoryParts) -> str:
    gc = memory.statistics.collector
    return f"pauses of {duration(gc.paused_ns)} in all; {percent(gc.cpu_fraction)} of the CPU time"


def _pace(memory: MemoryParts) -> str:
    gc = memory.statistics.collector
    gogc = "off" if gc.percent < 0 else f"{gc.percent}"
    limit = f", limit {_bytes(gc.limit)}" if gc.limit is not None else ""
    at = f"at {_bytes(gc.goal)}" if gc.goal is not None else "none due"
    return f"{at}; {_bytes(gc.live)} now, {_bytes(gc.marked)} at the last; GOGC={gogc}{limit}"


def _sizes(memory: MemoryParts, limit: int, *, width: int | None, color: bool) -> str:
    classes = [
        size_class
        for size_class in memory.statistics.classes
        if size_class.objects or size_class.held
    ]
    classes.sort(key=lambda size_class: -size_class.used)
    whole = sum(size_class.used for size_class in classes)
    rows = [
        columns.Row(
            (
                _bytes(size_class.used),
                percent(size_class.used / whole) if whole else "",
                f"{size_class.objects:,}",
                _bytes(size_class.waste),
                percent(size_class.pointerless / size_class.held) if size_class.held else "",
            ),
            _size(size_class),
        )
        for size_class in classes[:limit]
    ]
    text = columns.table(_HEADINGS, rows, width=width, color=color)
    rest = classes[limit:]
    used = sum(size_class.used for size_class in rest)
    more = f"and {counted(len(rest), 'more size')}, {_bytes(used)}\n" if rest else ""
    return text + more


def _size(size_class: SizeClass) -> str:
    return f"{size_class.size} B" if size_class.size else "large: one span each"


def _types(memory: MemoryParts, limit: int, *, width: int | None, color: bool) -> str:
    if memory.types is None:
        return "Types of objects are known from Go 1.22 on.\n"
    whole = memory.statistics.allocated
    share = percent(min(1.0, memory.typed / whole)) if whole > 0 else "none"
    part = "" if memory.typed_share == 1 else f", from {percent(memory.typed_share)} of them"
    title = f"By type, where it is known: {share} of the bytes{part}.\n"
    if not memory.types:
        return title
    rows = [
        columns.Row((_bytes(sums.used), f"{sums.objects:,}"), printable(sums.name))
        for sums in memory.types[:limit]
    ]
    return title + columns.table(("Used", "Objects", "Type"), rows, width=width, color=color)


def _bytes(value: float) -> str:
    return quantity(value, "bytes")
