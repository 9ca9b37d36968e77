"""What is wrong with the goroutines of a process, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ebpfprof.console.text import ages, counted, duration, printable
from ebpfprof.export.tables import stuck as stuck_table
from ebpfprof.export.tables.goroutine_frames import frame_as_json, wrapped
from ebpfprof.export.tables.goroutines import ids, stack
from ebpfprof.export.tables.waiting_for import lock_name
from ebpfprof.profile.diagnosis import Diagnosis
from ebpfprof.profile.goroutines import (
    DumpedGoroutine,
    GoroutineDump,
    GoroutineGroup,
    GrowingSite,
)
from ebpfprof.profile.standing import Senders
from ebpfprof.profile.stuck import Held
from ebpfprof.profile.waiting_for import Sureness

_INDENT: Final = "    "
_MAX_STACKS: Final = 8  # of a finding
_MAX_HOLDERS: Final = 3
_WHY_HELD: Final = "Likely: a lock that is held for long and released later gives the same picture."
_WHY_LEAK: Final = {
    True: "Certain: no other goroutine can do anything about it.",
    False: "Certain: Go's runtime reported it when the program made its goroutineleak profile.",
}


def render(diagnosis: Diagnosis, width: int | None, *, color: bool) -> str:
    """What is wrong, in sentences, with the stacks of who waits and who holds; or that nothing is.

    Lines have at most `width` columns, if their words allow it; None: no limit. No text of the
    target reaches the terminal as a control character. Ends with a newline.
    """
    dump = diagnosis.dump
    standing = sum(goroutine.stood_ns > 0 for goroutine in dump.goroutines)
    summary = (
        f"Sampled {dump.samples} times within {duration(dump.apart_ns)}, without a probe: "
        f"{standing} of {counted(len(dump.goroutines), 'goroutine')} did not move."
    )
    title = f"Process {dump.pid} ({dump.name}, {dump.version}) can be profiled."
    blocks = [_paragraphs([printable(title), summary, *_missing(diagnosis)], width)]
    shown: set[int] = set()
    for finding in _findings(diagnosis):
        said = _paragraphs(finding["lines"], width, _INDENT)
        blocks.append(_heading(finding, width, color=color) + said)
        blocks += _stacks(finding["members"], shown, width)
    if not diagnosis.has_findings:
        blocks.append(
            _paragraphs(
                [
                    "No fault was found: no deadlock of locks, no lost wake, no goroutine stuck "
                    "in a lock, no large group stuck in a send, no growing group.",
                    f"To find slow leaks: ebpfprof dump --pid {dump.pid} --watch",
                ],
                width,
            )
        )
    return "\n".join(blocks)


def summary(diagnosis: Diagnosis) -> str:
    """One line about a process: its findings by their titles, or that there are none."""
    titles = [finding["title"] for finding in _findings(diagnosis)]
    more = f" ({len(titles) - 1} more)" if len(titles) > 1 else ""
    what = f"{titles[0]}{more}" if titles else "No fault was found."
    return f"{diagnosis.dump.pid} ({printable(diagnosis.dump.name)}): {what}"


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The same for programs: docs/reading.md has the fields."""
    dump = diagnosis.dump
    return {
        "pid": dump.pid,
        "name": dump.name,
        "go": dump.version,
        "seconds_of_samples": dump.apart_ns / 1e9,
        "samples": dump.samples,
        "goroutines": len(dump.goroutines),
        "did_not_move": sum(goroutine.stood_ns > 0 for goroutine in dump.goroutines),
        "without_stack": dump.moved,
        "beyond_limit": dump.beyond,
        "findings": [
            {
                "kind": finding["kind"],
                "certain": finding["certain"],
                "title": finding["title"],
                "lines": finding["lines"],
                "goroutines": [_as_json(member) for member in finding["members"]],
            }
            for finding in _findings(diagnosis)
        ],
    }


def _findings(diagnosis: Diagnosis) -> Iterable[dict[str, Any]]:
    for stuck in diagnosis.stuck:
        title, *lines = stuck_table.lines(stuck)
        yield {
            "kind": stuck_table.kind(stuck),
            "certain": stuck.sureness is Sureness.CERTAIN,
            "title": title,
            "lines": lines,
            "members": stuck.goroutines,
        }
    for held in diagnosis.held:
        title, *lines = map(printable, _held(held))
        members = (*held.goroutines, *held.holders[:_MAX_HOLDERS])
        yield {
            "kind": "held_lock",
            "certain": False,
            "title": title,
            "lines": lines,
            "members": tuple({member.goid: member for member in members}.values()),
        }
    for group in diagnosis.leaks:
        first = group.first
        number = len(group.goroutines)
        title = f"Leak: {counted(number, 'goroutine')} can never go on: {first.state}."
        yield {
            "kind": "leak",
            "certain": True,
            "title": printable(title),
            "lines": [_WHY_LEAK[first.can_never_go_on]],
            "members": group.goroutines,
        }
    for senders in diagnosis.senders:
        title, *lines = map(printable, _senders(senders, diagnosis.dump))
        yield {
            "kind": "standing",
            "certain": False,
            "title": title,
            "lines": lines,
            "members": senders.group.goroutines,
        }
    for site in diagnosis.growing:
        title, *lines = map(printable, _growing(site, diagnosis.dump))
        yield {
            "kind": "growing",
            "certain": False,
            "title": title,
            "lines": lines,
            "members": (site.example,),
        }


def _senders(senders: Senders, dump: GoroutineDump) -> list[str]:
    group = senders.group
    head = "Probably a leak" if senders.is_abandoned else "Perhaps hung"
    number = f"{len(group.goroutines):,} goroutines"
    age = ages(group.newest_ns, group.longest_ns)
    lines = [f"{head}: {number} wait to send, and have not moved for at least {age}."]
    if created := group.first.created_by:
        lines.append(f"They were created by {created.function} ({created.position}).")
    lines += [
        f"The goroutines that it created grew from {site.before:,} to {site.now:,} in "
        f"{duration(dump.apart_ns)}."
        for site in dump.growing
        if site.created_by == created
    ]
    if senders.is_abandoned:
        lines.append(
            "Likely: each waits for a channel of its own, and no other goroutine waits for it."
        )
    else:
        channels = counted(len(group.channels), "channel")
        lines.append(f"They wait for {channels}: the receiver is slow or gone.")
    return lines


def _growing(site: GrowingSite, dump: GoroutineDump) -> list[str]:
    place = f"{site.created_by.function} ({site.created_by.position})"
    ended = f"{site.ended:,} of the first {site.before:,}" if site.ended else "None"
    return [
        f"Perhaps a leak: goroutines that {place} created grew from {site.before:,} to "
        f"{site.now:,} in {duration(dump.apart_ns)}.",
        f"{ended} ended meanwhile. Growing load gives the same picture.",
        f"To see whether it continues: ebpfprof dump --pid {dump.pid} --watch",
    ]


def _held(held: Held) -> list[str]:
    number = len(held.goroutines)
    verb = "waits" if number == 1 else "wait"
    lines = [
        f"Perhaps hung: {counted(number, 'goroutine')} {verb} for {lock_name(held.lock)}, and did "
        "not move."
    ]
    sure = held.goroutines[0].waits_for.surely_hold
    for holder in held.holders[:_MAX_HOLDERS]:
        holds = "holds it" if holder.goid in sure else "may hold it"
        lines.append(f"Goroutine {holder.goid} {holds}: {holder.state}.")
    more = len(held.holders) - _MAX_HOLDERS
    if more > 0:
        lines.append(f"{more} more may hold it.")
    if not held.holders:
        lines.append(
            "The holder is unknown: perhaps a goroutine that runs, or one that returned without "
            "an Unlock."
        )
    return [*lines, _WHY_HELD]


def _heading(finding: dict[str, Any], width: int | None, *, color: bool) -> str:
    lines = wrapped(finding["title"], width)
    shade = "\x1b[1;31m" if finding["certain"] else "\x1b[1;33m"
    return "".join(f"{shade}{line}\x1b[0m\n" if color else f"{line}\n" for line in lines)


def _stacks(members: Sequence[DumpedGoroutine], shown: set[int], width: int | None) -> list[str]:
    """The stacks of goroutines that were not shown before; alike ones together are one."""
    stacks = []
    new = [member for member in members if member.goid not in shown]
    alike: dict[tuple[object, ...], list[DumpedGoroutine]] = {}
    for goroutine in new:
        alike.setdefault((goroutine.state, goroutine.frames), []).append(goroutine)
    for group in list(alike.values())[:_MAX_STACKS]:
        alike_ones = GoroutineGroup(tuple(group))
        newest_ns, oldest_ns = alike_ones.newest_ns, alike_ones.longest_ns
        since = f", for at least {ages(newest_ns, oldest_ns)}" if oldest_ns else ""
        head = printable(f"{_INDENT}{ids(group)}: {group[0].state}{since}")
        lines = stack(alike_ones, width and max(width - len(_INDENT), 1))
        body = "".join(f"{_INDENT}{line}\n" for line in lines.splitlines())
        stacks.append("".join(f"{line}\n" for line in wrapped(head, width)) + body)
    shown.update(goroutine.goid for goroutine in new)
    if len(alike) > _MAX_STACKS:
        stacks.append(f"{_INDENT}and {len(alike) - _MAX_STACKS} more stacks: see ebpfprof dump\n")
    return stacks


def _missing(diagnosis: Diagnosis) -> list[str]:
    dump, lines = diagnosis.dump, []
    if dump.moved:
        lines.append(f"Incomplete: {dump.moved} without a stack, since they kept moving.")
    if dump.beyond:
        lines.append(f"Incomplete: {dump.beyond} more goroutines were not read.")
    return lines


def _paragraphs(lines: Iterable[str], width: int | None, indent: str = "") -> str:
    return "".join(f"{part}\n" for line in lines for part in wrapped(f"{indent}{line}", width))


def _as_json(goroutine: DumpedGoroutine) -> dict[str, Any]:
    return {
        "id": goroutine.goid,
        "state": goroutine.state,
        "did_not_move": goroutine.stood_ns > 0,
        "waited_at_least_s": goroutine.waited_ns / 1e9,
        "stack": [frame_as_json(frame) for frame in goroutine.frames],
    }
