"""Goroutines that may have leaked, as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ebpfprof.console.text import ages, counted, duration, printable
from ebpfprof.export.tables.goroutine_frames import frame_as_json
from ebpfprof.export.tables.goroutines import fitting, stack
from ebpfprof.profile.goroutines import GoroutineDump
from ebpfprof.profile.leaks import Suspects

_TOO_FEW_SAMPLES = 3


def render(
    dump: GoroutineDump, groups: Sequence[Suspects], sample: int, gone_ns: int, width: int | None
) -> str:
    """What sample number `sample`, `gone_ns` after the first one, shows of a process.

    Lines have at most `width` columns; None: no limit. Ends with a newline.
    """
    growing = sum(group.only_grows for group in groups)
    number = counted(len(dump.goroutines), "goroutine")
    title = f"process {dump.pid} ({dump.name}), {duration(gone_ns) if gone_ns else '0 s'}: {number}"
    if sample >= _TOO_FEW_SAMPLES:
        verb = "grows" if growing == 1 else "grow"
        title += (
            f"; {counted(growing, 'group')} only {verb}" if growing else "; no group only grows"
        )
    text = fitting(printable(title), width)
    for suspects in groups:
        text += (
            "\n"
            + fitting(head(suspects, len(suspects.group.goroutines)), width)
            + stack(suspects.group, width)
        )
    return text


def encode(dump: GoroutineDump, groups: Sequence[Suspects], sample: int, gone_ns: int) -> str:
    """The same as a line of JSON."""
    return json.dumps(
        {
            "pid": dump.pid,
            "name": dump.name,
            "sample": sample,
            "seconds": gone_ns / 1e9,
            "goroutines": len(dump.goroutines),
            "suspects": [
                {
                    "state": group.group.first.state,
                    "count": len(group.group.goroutines),
                    "others": group.others,
                    "only_grows": group.only_grows,
                    "growth_per_minute": round(group.per_minute, 3),
                    "oldest_at_least_s": group.oldest_ns / 1e9,
                    "newest_at_least_s": group.newest_ns / 1e9,
                    "moving": group.is_alive,
                    "can_never_go_on": group.group.first.can_never_go_on,
                    "leaked": group.group.first.is_leaked,
                    "stack": [frame_as_json(frame) for frame in group.group.first.frames],
                    "created_by": frame_as_json(created)
                    if (created := group.group.first.created_by)
                    else None,
                    "some_ids": [goroutine.goid for goroutine in group.group.goroutines[:8]],
                }
                for group in groups
            ],
        }
    )


def head(suspects: Suspects, count: int) -> str:
    """How fast a group grows, how many there are now (`count`), what they do: one line."""
    first = suspects.group.first
    rate = float(f"{suspects.per_minute:.3g}")
    words = [f"+{rate:,.10g} a minute"] if suspects.only_grows else []
    words.append(f"{count} now")
    if suspects.oldest_ns > 0:
        alive = "alive " if suspects.is_alive else ""
        words.append(f"{alive}for at least {ages(suspects.newest_ns, suspects.oldest_ns)}")
    if suspects.is_alive:
        return printable(f"{', '.join(words)}: they move, but do not end")
    if suspects.others:
        words.append(f"{suspects.others} more that may go on")
    if first.can_never_go_on:
        words.append("can never go on")
    if first.is_leaked:
        words.append("leaked, as Go's runtime reported")
    return printable(f"{', '.join(words)}: {first.state}")
