"""The top of a profile as a table for people: where the goroutines waited, and for what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ebpfprof.console.text import counted, duration, printable
from ebpfprof.export.tables.columns import fit, rendered
from ebpfprof.profile.model import Frame, Profile, Sample

if TYPE_CHECKING:
    from ebpfprof.profile.idle import Hidden

_MAX_NAME = 512
_MAX_CACHED = 1 << 16
_MAX_RULES_NAMED = 4
_MIN_ROOM = 24
_OPERATION_ROOM = 40
_UNLIMITED = 10 * _MAX_NAME  # printable() makes at most ten characters of one
_WORDS = {
    "runtime.chansend1": "chan send",
    "runtime.chanrecv1": "chan receive",
    "runtime.chanrecv2": "chan receive",
    "runtime.selectgo": "select",
    "reflect.chansend0": "chan send",
    "reflect.chansend": "chan send",
    "reflect.chanrecv": "chan receive",
    "internal/poll.(*fdMutex).rwlock": "fd lock",
}
# What a wait is for, where the function that waits says it better than what it waits with. The
# package's own frames below it are then no news.
_CALLS = {
    "database/sql.(*DB).conn": "sql connection",
    "golang.org/x/sync/errgroup.(*Group).Go": "errgroup Go",
    "golang.org/x/sync/errgroup.(*Group).Wait": "errgroup Wait",
    "golang.org/x/sync/semaphore.(*Weighted).Acquire": "semaphore Acquire",
    "golang.org/x/sync/singleflight.(*Group).Do": "singleflight Do",
    "golang.org/x/time/rate.(*Limiter).wait": "rate limit",
    "io.(*pipe).read": "pipe read",
    "io.(*pipe).write": "pipe write",
    "net.(*Resolver).lookupIPAddr": "DNS lookup",
    "net/http.(*Transport).getConn": "HTTP connection",
    "net/http.(*persistConn).roundTrip": "HTTP answer",
}
_NOTHING = {
    "block": "no goroutine waited and was woken",
    "mutex": "no goroutine waited for a lock",
    "open": "no goroutine waits",
}
_COLUMNS = {
    "block": ("Delay", "Count"),
    "mutex": ("Delay", "Count"),
    "open": ("Waiting", "Goroutines"),
}
_SYNC = re.compile(r"(?:internal/)?sync\.(?:\(\*(?P<type>\w+)(?:\[.*\])?\)\.)?(?P<function>\w+)")
# Of a Cond, the lock is the program's own; a rlocker is another face of a RWMutex.
_LOCKS_FOR_OTHERS = ("Cond", "rlocker")
_STANDARD = ("runtime", "internal", "sync", "reflect")


@dataclass(frozen=True, slots=True)
class Row:
    """All samples with one operation called from one line.

    `share` is the part (0 to 1) of the profile's total delay. Text is as the target has it: not
    fit for a terminal before text.printable().
    """

    operation: str
    function: str
    file: str
    line: int
    contentions: int
    delay_ns: int
    share: float

    @property
    def mean_ns(self) -> float:
        """Mean delay of one contention, in nanoseconds."""
        return self.delay_ns / self.contentions if self.contentions else 0.0


def top_rows(profile: Profile, limit: int) -> list[Row]:
    """The `limit` lines of the program with the largest total delay, largest first.

    The values of `profile` must be (count, nanoseconds), as in block and mutex profiles.
    """
    return rows_of(profile.samples, limit)


def rows_of(samples: Iterable[Sample], limit: int) -> list[Row]:
    """The same for samples that stand alone."""
    sums: dict[tuple[str, str, str, int], list[int]] = {}
    for sample in samples:
        count, ns = sample.values[0], sample.values[-1]
        frames = [frame for location in sample.locations for frame in location.frames]
        found = caller(frames)
        key = (operation(frames), found.function, found.file, found.line)
        total = sums.setdefault(key, [0, 0])
        total[0] += count
        total[1] += ns
    all_ns = sum(ns for _, ns in sums.values())
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    return [
        Row(*key, contentions=count, delay_ns=ns, share=ns / all_ns if all_ns else 0.0)
        for key, (count, ns) in ordered[:limit]
    ]


def render(profile: Profile, *, limit: int = 10, width: int | None, color: bool) -> str:
    """The top rows as a table of at most `width` columns; None stands for as many as it takes.

    Without `color` the text is plain ASCII. Nothing that the target says reaches the terminal
    as a control character. Ends with a newline.
    """
    rows = top_rows(profile, limit)
    if not rows:
        return f"Nothing was recorded: {_NOTHING[profile.kind]}.\n"
    return _table(profile, rows, width, color)


def hidden_line(hidden: Sequence[Hidden]) -> str:
    """What was left out as idle, in a line (with its newline); nothing if nothing was."""
    if not hidden:
        return ""
    whole_ns = sum(each.delay_ns for each in hidden)
    count = sum(each.count for each in hidden)
    largest = sorted(hidden, key=lambda each: -each.delay_ns)[:_MAX_RULES_NAMED]
    named = ", ".join(f"{each.rule.name} {duration(each.delay_ns)}" for each in largest)
    more = ", ..." if len(hidden) > _MAX_RULES_NAMED else ""
    return f"Hidden as idle: {duration(whole_ns)} in {counted(count, 'wait')} ({named}{more})\n"


def caller(frames: Sequence[Frame]) -> Frame:
    """The innermost frame of the program's own; the outermost one if all are Go's inside."""
    at = _first_outside(frames)
    if at == len(frames):
        return frames[-1] if frames else Frame("[unknown]", "", 0)
    found = frames[at]
    if found.function in _CALLS:
        package = f"{_package(found.function)}."
        outside = (frame for frame in frames[at:] if not frame.function.startswith(package))
        return next(outside, found)
    return found


def _first_outside(frames: Sequence[Frame]) -> int:
    """The place of the innermost frame that is not Go's inside; behind the last if all are."""
    for place, frame in enumerate(frames):
        if not _is_inside_go(frame.function):
            return place
    return len(frames)


def _package(function: str) -> str:
    slash = function.rfind("/") + 1
    return function[:slash] + function[slash:].partition(".")[0]


@lru_cache(_MAX_CACHED)
def _is_inside_go(function: str) -> bool:
    # A module's first path element has a dot ("sync.example/x.F") and is then no package of Go's:
    # there the first slash comes behind the first dot, unless it is a type parameter's.
    path = function.partition("[")[0]
    first, separator, _ = path.partition("/")
    if separator and "." in first:
        return False
    return re.split(r"[/.]", path, maxsplit=1)[0] in _STANDARD


def operation(frames: Sequence[Frame]) -> str:
    """What the goroutine waited for, in words; the leaf function where there are none.

    `frames` are those of its stack, the innermost first.
    """
    if not frames:
        return "[unknown]"
    leaf = frames[0].function
    outside = _first_outside(frames)
    if 0 < outside < len(frames) and frames[outside].function in _CALLS:
        return _CALLS[frames[outside].function]
    if leaf in _WORDS:
        return _WORDS[leaf]
    name = leaf
    # sync is built on itself: Mutex.Lock called by Once.Do is Once.Do to the program.
    for frame in frames:
        match = _SYNC.match(frame.function)
        if match is None or (name != leaf and match["type"] in _LOCKS_FOR_OTHERS):
            break
        name = ".".join(part for part in match.group("type", "function") if part)
    return name


def _table(profile: Profile, rows: list[Row], width: int | None, color: bool) -> str:
    # rich takes some 30 ms to import: only who prints a table pays for it.
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    def safe(text: str, room: int | None) -> str:
        return fit(printable(text[-_MAX_NAME:], ascii_only=not color), room, cell_len)

    cells = [
        (
            duration(row.delay_ns),
            f"{100 * row.share:.1f}%",
            str(row.contentions),
            duration(row.mean_ns),
            safe(row.operation, _OPERATION_ROOM),
        )
        for row in rows
    ]
    total, count = _COLUMNS[profile.kind]
    headings = (total, "Share", count, "Mean", "Operation")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index < 4 else "left", no_wrap=True)
    table.add_column("Called from", no_wrap=True)
    taken = sum(max(map(cell_len, column)) + 2 for column in zip(headings, *cells, strict=True))
    room = None if width is None else max(width - taken, _MIN_ROOM)
    for row, fixed in zip(rows, cells, strict=True):
        where = Text(safe(row.function, room))
        if row.file:
            where.append("\n" + safe(f"{row.file}:{row.line}", room), style="dim")
        table.add_row(*(Text(cell) for cell in fixed), where)
    return rendered(table, width=taken + (room or _UNLIMITED), color=color)
