"""What is wrong with a process, as text for people and as JSON for programs."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import duration, listed, percent, printable
from ebpfprof.export.tables.goroutine_frames import frame_as_json
from ebpfprof.findings.finding import Level

if TYPE_CHECKING:
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.finding import Finding
    from ebpfprof.findings.rules import Explanation

_MOST: Final = 4
"""Findings that are shown: with their lines they fit a small terminal."""
_COLORS: Final = {Level.STUCK: "1;31", Level.SLOW: "1;33", Level.RISK: "1;33", Level.NOTE: "1"}
_WIDEST: Final = 100


def render(evidence: Evidence, explanation: Explanation, width: int | None, *, color: bool) -> str:
    """The findings with their evidence, the worst first; then what was checked and is fine.

    Lines have at most `width` columns, if their words allow it. No text of the target reaches the
    terminal as a control character. Ends with a newline.
    """
    program = evidence.program
    columns = min(width or _WIDEST, _WIDEST)
    overhead = "" if evidence.overhead is None else f", overhead {percent(evidence.overhead)}"
    head = (
        f"Process {program.pid} ({program.name}, {program.version}), "
        f"{duration(evidence.length_ns)}{overhead}"
    )
    blocks = ["".join(f"{line}\n" for line in _wrapped(head, columns))]
    for number, finding in enumerate(explanation.findings[:_MOST], 1):
        blocks.append(_block(number, finding, columns, color=color))
    last = []
    if more := explanation.findings[_MOST:]:
        last.append(f"Also: {'; '.join(finding.title.rstrip('.') for finding in more)}.")
    if not explanation.findings:
        last.append("Nothing is wrong, as far as this shows.")
    if explanation.fine:
        last.append(f"OK: {', '.join(explanation.fine)}.")
    last += evidence.failures
    blocks.append("".join(f"{line}\n" for text in last for line in _wrapped(text, columns)))
    return "\n".join(blocks)


def _block(number: int, finding: Finding, columns: int, *, color: bool) -> str:
    head = f"{number}. "
    title = _wrapped(finding.title, columns - len(head))
    if color:
        title = [f"\x1b[{_COLORS[finding.level]}m{line}\x1b[0m" for line in title]
    indent = " " * len(head)
    lines = [f"{head if not at else indent}{line}" for at, line in enumerate(title)]
    for text in finding.lines:
        lines += [f"{indent}{line}" for line in _wrapped(text, columns - len(head))]
    if finding.next:
        lines.append(f"{indent}Next: sudo ebpfprof {finding.next}")
    return "".join(f"{line}\n" for line in lines)


def _wrapped(text: str, columns: int) -> list[str]:
    return wrap(printable(text), columns, break_long_words=False, break_on_hyphens=False)


def as_json(evidence: Evidence, explanation: Explanation) -> dict[str, Any]:
    """The same for programs: docs/reading.md has the fields."""
    program = evidence.program
    return {
        "pid": program.pid,
        "name": program.name,
        "go": program.version,
        "seconds": evidence.length_ns / 1e9,
        "overhead": evidence.overhead,
        "findings": [_finding(finding) for finding in explanation.findings],
        "fine": list(explanation.fine),
        "incomplete": list(evidence.failures),
    }


def summary(explanation: Explanation) -> str:
    """One line about a process: its findings by their titles, or that there are none."""
    titles = [finding.title.rstrip(".") for finding in explanation.findings]
    return f"{listed(titles)}." if titles else "Nothing is wrong, as far as this shows."


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "level": finding.level.name.lower(),
        "title": finding.title,
        "lines": list(finding.lines),
        "share": finding.share,
        "error": finding.error,
        "certain": finding.is_certain,
        "place": frame_as_json(finding.place) if finding.place else None,
        "next": f"ebpfprof {finding.next}" if finding.next else None,
    }
