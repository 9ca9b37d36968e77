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
    dump: GoroutineDump, found: Sequence[Suspects], sample: int, gone_ns: int, width: int | None
) -> str:
    """What sample number `sample`, `gone_ns` after the first one, shows of a process.

    Lines have at most `width` columns; None: no limit. Ends with a newline.
    """
    growing = sum(each.only_grows for each in found)
    number = counted(len(dump.goroutines), "goroutine")
    title = f"process {dump.pid} ({dump.name}), {duration(gone_ns) if gone_ns else '0 s'}: {number}"
    if sample >= _TOO_FEW_SAMPLES:
        verb = "grows" if growing == 1 else "grow"
        title += (
            f"; {counted(growing, 'group')} only {verb}" if growing else "; no group only grows"
        )
    text = fitting(printable(title), width)
    for each in found:
        text += (
            "\n" + fitting(head(each, len(each.group.goroutines)), width) + stack(each.group, width)
        )
    return text


def encode(dump: GoroutineDump, found: Sequence[Suspects], sample: int, gone_ns: int) -> str:
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
                    "state": each.group.first.state,
                    "count": len(each.group.goroutines),
                    "others": each.others,
                    "only_grows": each.only_grows,
                    "growth_per_minute": round(each.per_minute, 3),
                    "oldest_at_least_s": each.oldest_ns / 1e9,
                    "newest_at_least_s": each.newest_ns / 1e9,
                    "moving": each.is_alive,
                    "can_never_go_on": each.group.first.can_never_go_on,
                    "leaked": each.group.first.is_leaked,
                    "stack": [frame_as_json(frame) for frame in each.group.first.frames],
                    "created_by": frame_as_json(created)
                    if (created := each.group.first.created_by)
                    else None,
                    "some_ids": [goroutine.goid for goroutine in each.group.goroutines[:8]],
                }
                for each in found
            ],
        }
    )


def head(each: Suspects, count: int) -> str:
    """How fast a group grows, how many there are now (`count`), what they do: one line."""
    first = each.group.first
    words = [f"+{each.per_minute:.3g} a minute"] if each.only_grows else []
    words.append(f"{count} now")
    if each.oldest_ns > 0:
        alive = "alive " if each.is_alive else ""
        words.append(f"{alive}for at least {ages(each.newest_ns, each.oldest_ns)}")
    if each.is_alive:
        return printable(f"{', '.join(words)}: they move, but do not end")
    if each.others:
        words.append(f"{each.others} more that may go on")
    if first.can_never_go_on:
        words.append("can never go on")
    if first.is_leaked:
        words.append("leaked, as Go's runtime reported")
    return printable(f"{', '.join(words)}: {first.state}")
