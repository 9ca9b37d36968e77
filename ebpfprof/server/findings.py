"""What is wrong with the goroutines of a process, in sentences, for the page and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import ages, counted, printable, quantity
from ebpfprof.export.tables import leaks
from ebpfprof.export.tables import stuck as stuck_table
from ebpfprof.export.tables.goroutine_frames import frame_as_json, shown_frames
from ebpfprof.export.tables.quantities import error_cell
from ebpfprof.profile.operations import caller
from ebpfprof.profile.waiting_for import Sureness

if TYPE_CHECKING:
    from ebpfprof.goruntime.waits.watch import HangingGroup, WatchedGoroutines
    from ebpfprof.profile.goroutines import GoroutineGroup
    from ebpfprof.profile.leaks import Suspects
    from ebpfprof.profile.model import Frame
    from ebpfprof.profile.stuck import Stuck
    from ebpfprof.server.growths import GrowingStack

_MAX_FRAMES: Final = 100
_MAX_LINES: Final = 64


def as_json(goroutines: WatchedGoroutines) -> list[dict[str, Any]]:
    """What is stuck, goroutines that hang, and leaks, in this order.

    Each has a `kind`, a `title`, `lines` that explain it, the `count` of its goroutines, and the
    frames of their `stack` without the runtime's, innermost first. Titles and lines are printable;
    names in stacks are as the target has them.
    """
    return [
        *(_stuck(stuck) for stuck in goroutines.stuck),
        *(_hanging(group) for group in goroutines.hanging),
        *(_leak(*leak) for leak in goroutines.leaks),
    ]


def _stuck(stuck: Stuck) -> dict[str, Any]:
    title, *lines = stuck_table.lines(stuck)
    shown = [*lines[:-1][:_MAX_LINES], lines[-1]]  # the last one says why
    fields = _finding(stuck_table.kind(stuck), title, shown, len(stuck.goroutines), ())
    return {**fields, "certain": stuck.sureness is Sureness.CERTAIN}


def _hanging(group: HangingGroup) -> dict[str, Any]:
    place = caller(group.first.frames)
    verb = "has" if group.count == 1 else "have"
    title = (
        f"{counted(group.count, 'goroutine')} {verb} not moved for "
        f"{ages(group.newest_ns, group.at_least_ns, 2)} or longer: {group.operation} in "
        f"{place.function} ({place.position})."
    )
    lines = [f"One of them is goroutine {group.first.goid}."] if group.count > 1 else []
    fields = _finding("hanging", title, lines, group.count, shown_frames(group.first))
    return {
        **fields,
        "at_least_s": group.at_least_ns / 1e9,
        "newest_at_least_s": group.newest_ns / 1e9,
    }


def _leak(suspects: Suspects, count: int) -> dict[str, Any]:
    first = suspects.group.first
    place = caller(first.frames)
    words = leaks.head(suspects, count)
    where = "" if suspects.is_alive else f" in {place.function} ({place.position})"
    title = f"Perhaps a leak: {words}{where}."
    created = first.created_by
    lines = [f"They were created by {created.function} ({created.position})."] if created else []
    return {
        **_finding("leak", title, lines, count, shown_frames(first)),
        "at_least_s": suspects.oldest_ns / 1e9,
        "newest_at_least_s": suspects.newest_ns / 1e9,
        "growth_per_minute": round(suspects.per_minute, 3),
        "only_grows": suspects.only_grows,
    }


def unreachable_as_json(group: GoroutineGroup) -> dict[str, Any]:
    """Goroutines that can never continue, since nothing refers to what they wait for."""
    place = caller(group.first.frames)
    count = len(group.goroutines)
    title = (
        f"{counted(count, 'goroutine')} can never continue: {group.first.state} in "
        f"{place.function} ({place.position})."
    )
    lines = ["Nothing that can run refers to what they wait for."]
    if created := group.first.created_by:
        lines.append(f"Created by {created.function} ({created.position}).")
    return _finding("unreachable", title, lines, count, shown_frames(group.first))


def growth_as_json(growing: GrowingStack) -> dict[str, Any]:
    """A stack whose memory in use only grows, in the same form: `count` is bytes in use."""
    frames = [frame for location in growing.key for frame in location.frames]
    place = caller(frames)
    error = error_cell(growing.error / growing.grown, color=False)
    shown_error = f" ({error})" if error else ""
    title = (
        f"Perhaps a leak: memory in use by {place.function} ({place.position}) only grows, by "
        f"{_bytes(growing.per_minute)} a minute{shown_error}; {_bytes(growing.now)} now."
    )
    lines = [f"It grew by {_bytes(growing.grown)} since the first sample."]
    return {
        **_finding("growth", title, lines, growing.now, frames),
        "growth_bytes_per_minute": round(growing.per_minute),
        "grown_bytes": growing.grown,
        "error_bytes": round(growing.error),
    }


def _bytes(value: float) -> str:
    return quantity(value, "bytes")


def _finding(
    kind: str, title: str, lines: Sequence[str], count: int, frames: Sequence[Frame]
) -> dict[str, Any]:
    return {
        "kind": kind,
        "title": printable(title),
        "lines": [printable(line) for line in lines],
        "count": count,
        "stack": [frame_as_json(frame) for frame in frames[:_MAX_FRAMES]],
    }
