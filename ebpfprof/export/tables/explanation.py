"""What is wrong with a process, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import duration, percent, printable
from ebpfprof.export.tables.goroutine_frames import frame_as_json
from ebpfprof.findings.finding import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.findings.changes import FindingChange
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.finding import Finding
    from ebpfprof.findings.rules import Explanation

FORMAT: Final = "ebpfprof-explain-1"
"""The name of the JSON: it changes if a field is removed, or means something else."""
_MOST: Final = 4
"""Findings that are shown with evidence; others by their titles."""
_MOST_LINES: Final = 15
"""Lines for one process, in a terminal of 80 columns: one screen, with room for a prompt."""
_MOST_FINE: Final = 2
"""Lines of what was checked and is fine, below findings."""
_COLORS: Final = {Level.STUCK: "1;31", Level.SLOW: "1;33", Level.RISK: "1;33", Level.NOTE: "1"}
_WIDEST: Final = 100
_LONGEST_WORD: Final = 48
_IN_A_QUANTITY: Final = re.compile(
    r"(?<=\d) (?=(?:%|±|[num]?s\b|min\b|[KMG]?i?B\b|CPUs?\b))|(?<=±) (?=\d)"
)
"""Spaces at which no line is broken: "0.5 %", "30 ± 4 ms"."""
_JOINT: Final = "\N{NO-BREAK SPACE}"
_NOTHING: Final = "Nothing is wrong, as far as this shows."


def render(
    evidence: Evidence,
    explanation: Explanation,
    width: int | None,
    *,
    color: bool,
    is_long: bool = False,
) -> str:
    """The findings with their evidence, the worst first; then what was checked and is fine.

    Unless it `is_long`, it has at most 15 lines of 80 columns: the evidence of the last findings
    is left out first. No text of the target reaches the terminal as a control character. Ends with
    a newline.
    """
    columns = min(width or _WIDEST, _WIDEST)
    findings = explanation.findings
    shown = findings if is_long else findings[:_MOST]
    head = _wrapped(_head(evidence), columns)
    last = [] if len(shown) == len(findings) else _wrapped(_also(findings[_MOST:]), columns)
    if not findings:
        last += [_NOTHING]
    most = None if is_long or not findings else _MOST_FINE
    last += _fine(explanation.fine, columns, most)
    last += [line for text in evidence.failures for line in _wrapped(text, columns)]
    blocks = [_Block(number, finding, columns) for number, finding in enumerate(shown, 1)]
    room = _MOST_LINES - len(head) - len(last) - 2  # blank lines
    if not is_long:
        _fit(blocks, room)
    middle = [line for block in blocks for line in block.lines(color=color)]
    parts = [part for part in (head, middle, last) if part]
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts)


@dataclass
class _Block:
    """The lines of a finding, which may leave out some of its evidence."""

    number: int
    finding: Finding
    columns: int

    def __post_init__(self) -> None:
        head = f"{self.number}. "
        self._indent = " " * len(head)
        columns = self.columns - len(head)
        self._title = [
            f"{head if not index else self._indent}{line}"
            for index, line in enumerate(_wrapped(self.finding.title, columns))
        ]
        self._evidence = [
            [f"{self._indent}{line}" for line in _wrapped(text, columns)]
            for text in self.finding.lines
        ]
        self._has_next = bool(self.finding.next)

    def shorten(self) -> bool:
        """Leave out the last line of evidence, or what to type next; False if nothing is left."""
        if self._evidence:
            self._evidence.pop()
            return True
        had_next, self._has_next = self._has_next, False
        return had_next

    @property
    def height(self) -> int:
        return len(self._title) + sum(map(len, self._evidence)) + self._has_next

    def lines(self, *, color: bool) -> list[str]:
        title = self._title
        if color:
            title = [f"\x1b[{_COLORS[self.finding.level]}m{line}\x1b[0m" for line in title]
        lines = [*title, *(line for text in self._evidence for line in text)]
        if self._has_next:
            lines.append(f"{self._indent}Next: sudo ebpfprof {printable(self.finding.next)}")
        return lines


def _fit(blocks: Sequence[_Block], room: int) -> None:
    """Leave out evidence, of the last findings first, until all fit into `room` lines."""
    for block in reversed(blocks):
        while sum(one.height for one in blocks) > room and block.shorten():
            pass


def _head(evidence: Evidence) -> str:
    program = evidence.program
    overhead = "" if evidence.overhead is None else f", overhead {percent(evidence.overhead)}"
    return (
        f"Process {program.pid} ({program.name}, {program.version}), "
        f"{duration(evidence.length_ns, 2)}{overhead}"
    )


def _also(findings: Sequence[Finding]) -> str:
    return f"Also: {'; '.join(_bare(finding.title) for finding in findings)}."


def _fine(fine: Sequence[str], columns: int, most: int | None) -> list[str]:
    """What was checked, in at most `most` lines: the rest is counted."""
    for number in range(len(fine), 0, -1):
        rest = "" if number == len(fine) else f", {len(fine) - number} more"
        lines = _wrapped(f"OK: {', '.join(fine[:number])}{rest}.", columns)
        if most is None or len(lines) <= most or number == 1:
            return lines
    return []


def _wrapped(text: str, columns: int) -> list[str]:
    words = " ".join(_shortened(word) for word in printable(text).split(" "))
    joined = _IN_A_QUANTITY.sub(_JOINT, words)
    lines = wrap(joined, columns, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_JOINT, " ") for line in lines]


def _shortened(word: str) -> str:
    """A word that leaves room for others on a line: the middle of a longer one is left out."""
    if len(word) <= _LONGEST_WORD:
        return word
    half = (_LONGEST_WORD - 3) // 2
    return f"{word[:half]}...{word[-half:]}"


def _bare(title: str) -> str:
    return title.rstrip(".")


def as_json(evidence: Evidence, explanation: Explanation) -> dict[str, Any]:
    """The same for programs, as one of the processes of a document()."""
    program = evidence.program
    return {
        "pid": program.pid,
        "name": program.name,
        "go": program.version,
        "seconds": evidence.length_ns / 1e9,
        "overhead": evidence.overhead,
        "findings": [finding_as_json(finding) for finding in explanation.findings],
        "fine": list(explanation.fine),
        "incomplete": list(evidence.failures),
    }


def summary(evidence: Evidence, explanation: Explanation) -> str:
    """A line: the process, and its findings by their titles, or that there are none."""
    program = evidence.program
    titles = "; ".join(_bare(finding.title) for finding in explanation.findings)
    return printable(f"{program.pid} ({program.name}): {titles or _bare(_NOTHING)}.")


def document(
    exit_code: int, processes: Sequence[dict[str, Any]], kept: dict[str, Any] | None = None
) -> str:
    """The JSON of some processes: docs/explain.schema.json has the fields."""
    fields = {"format": FORMAT, "exit_code": int(exit_code), "processes": list(processes)}
    return json.dumps(fields if kept is None else {**fields, "kept": kept}, indent=1)


def change_line(
    evidence: Evidence, change: FindingChange[Finding], now_s: float, *, of_process: bool
) -> str:
    """A change in one line, with the time of day; `of_process`: and the process."""
    program = evidence.program
    when = time.strftime("%H:%M:%S", time.localtime(now_s))
    process = f" {program.pid} ({program.name})" if of_process else ""
    return printable(f"{when}{process} {change.kind}: {change.finding.title}")


def change_as_json(
    evidence: Evidence, change: FindingChange[Finding], now_s: float
) -> dict[str, Any]:
    """The same for programs: docs/explain.schema.json has the fields."""
    program = evidence.program
    return {
        "format": FORMAT,
        "time_s": now_s,
        "pid": program.pid,
        "name": program.name,
        "change": change.kind,
        "finding": finding_as_json(change.finding),
    }


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """A finding for programs. Texts are printable; names of places are as the target has them."""
    return {
        "kind": finding.kind,
        "level": finding.level.name.lower(),
        "title": printable(finding.title),
        "lines": [printable(line) for line in finding.lines],
        "share": finding.share,
        "error": finding.error,
        "certain": finding.is_certain,
        "place": frame_as_json(finding.place) if finding.place else None,
        "next": f"ebpfprof {finding.next}" if finding.next else None,
    }
