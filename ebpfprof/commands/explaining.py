"""How `ebpfprof explain` observes processes, once or repeatedly, and shows what is wrong."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ebpfprof.console.terminal import has_color, progress, say, width
from ebpfprof.console.text import in_one_line, printable, wrapped
from ebpfprof.errors import EbpfprofError, ExitCode, FaultFound, TargetGone
from ebpfprof.export.tables import explanation as table
from ebpfprof.findings.changes import FindingChanges, by_place
from ebpfprof.findings.finding import Level
from ebpfprof.findings.rules import explained
from ebpfprof.observing.observer import without_cpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.commands.trouble import KeptEvidence
    from ebpfprof.findings.changes import FindingChange
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.finding import Finding
    from ebpfprof.findings.rules import Explanation
    from ebpfprof.observing.observer import Observer
    from ebpfprof.system.signals import Signals


@dataclass(frozen=True, slots=True)
class Explained:
    """What was observed of a process, and what is wrong with it."""

    evidence: Evidence
    explanation: Explanation

    @property
    def level(self) -> Level:
        """The level of the worst finding; NOTE without any."""
        return max((one.level for one in self.explanation.findings), default=Level.NOTE)


@dataclass
class Explaining:
    """Explains the processes of `observer`, whose pids are `pids`, in their order."""

    pids: Sequence[int]
    observer: Observer
    signals: Signals
    length_s: float
    as_json: bool
    is_long: bool
    refusal: EbpfprofError | None = None
    """Why the CPU time is not sampled; None if it is."""
    _code: int = ExitCode.OK
    _failed: dict[int, EbpfprofError] = field(default_factory=dict)
    _least: Level = Level.NOTE
    _observed: set[int] = field(default_factory=set)
    _changes: dict[int, FindingChanges[Finding]] = field(default_factory=dict)

    def once(self) -> int:
        """Observe all processes, and print what is wrong; returns the exit code."""
        by_pid = self._observe(is_shown=not self.as_json)
        if self.as_json:
            rows = self._rows(by_pid)
            say(table.document(self._code, rows))
        else:
            self._show(by_pid)
        return self._code

    def watch(self) -> int:
        """Explain, then observe again and again, and print what changes; returns the exit code.

        It ends at a signal, or when all processes have ended.
        """
        is_first = True
        while is_first or not self._is_over:
            by_pid = self._observe(is_shown=is_first and not self.as_json)
            if self.signals.came and not is_first:
                break
            if is_first and not self.as_json:
                self._show(by_pid)
            for pid, one in by_pid.items():
                known = self._changes.setdefault(pid, FindingChanges())
                changes = known.add(by_place(one.explanation.findings))
                if not is_first or self.as_json:
                    self._show_changes(one, changes)
            is_first = False
        return self._code

    def wait_for_trouble(self, kept: KeptEvidence) -> int:
        """Observe again and again until a process is in trouble, then print that and keep evidence.

        Returns the exit code. It also ends at a signal, or when all processes have ended.
        """
        self._least = Level.SLOW
        if not self.as_json:
            say(f"Waiting for trouble in {self._processes()}; Ctrl-C ends it", err=True)
        troubled: dict[int, Explained] = {}
        while not troubled and not self._is_over:
            by_pid = self._observe(is_shown=False)
            troubled = {pid: one for pid, one in by_pid.items() if one.level >= self._least}
        if not troubled:
            if self.as_json:
                say(table.document(self._code, self._rows({})))
            return self._code
        if not self.as_json:
            self._show(troubled)
            say(f"\n{kept.announcement}", err=True)
        worst = max(troubled.values(), key=lambda one: one.level)
        self.observer.close()
        kept.keep(worst.evidence, worst.explanation, self.signals)
        if self.as_json:
            rows = self._rows(troubled)
            say(table.document(self._code, rows, kept.as_json()))
        else:
            say(f"\n{kept.render()}", wraps=True)
        return self._code

    @property
    def _is_over(self) -> bool:
        return self.signals.came or len(self._failed) == len(self.pids)

    def _processes(self) -> str:
        numbers = ", ".join(map(str, self.pids))
        return f"process {numbers}" if len(self.pids) == 1 else f"processes {numbers}"

    def _observe(self, *, is_shown: bool) -> dict[int, Explained]:
        """Observe once. Failures are reported, once each; they don't affect other processes."""
        with progress(self.length_s, is_shown=is_shown) as draw:
            observed = self.observer.observe(lambda gone_s: bool(draw(gone_s)) or self.signals.came)
        by_pid: dict[int, Explained] = {}
        for pid, evidence in zip(self.pids, observed, strict=True):
            if isinstance(evidence, EbpfprofError):
                self._fail(pid, evidence)
                continue
            evidence = without_cpu(evidence, self.refusal)
            by_pid[pid] = Explained(evidence, explained(evidence))
            self._observed.add(pid)
            is_wrong = by_pid[pid].explanation.findings and by_pid[pid].level >= self._least
            if is_wrong and self._code == ExitCode.OK:
                self._code = FaultFound.exit_code
        return by_pid

    def _fail(self, pid: int, error: EbpfprofError) -> None:
        if pid in self._failed:
            return
        has_ended = isinstance(error, TargetGone) and pid in self._observed
        if not has_ended and self._code in (ExitCode.OK, FaultFound.exit_code):
            self._code = error.exit_code
        self._failed[pid] = error
        say(f"ebpfprof: {printable(str(error))}", err=True)

    def _rows(self, by_pid: dict[int, Explained]) -> list[dict[str, Any]]:
        return [
            table.as_json(by_pid[pid].evidence, by_pid[pid].explanation)
            if pid in by_pid
            else _failure_as_json(pid, self._failed[pid])
            for pid in self.pids
            if pid in by_pid or pid in self._failed
        ]

    def _show(self, by_pid: dict[int, Explained]) -> None:
        """Print what is wrong; with several processes, a line of each first."""
        columns = width(sys.stdout)
        texts = []
        if len(self.pids) > 1:
            lines = [
                table.summary(by_pid[pid].evidence, by_pid[pid].explanation)
                if pid in by_pid
                else f"{pid}: not explained (see the error above)"
                for pid in self.pids
            ]
            shown = (wrapped(line, columns) if columns else line for line in lines)
            texts.append("".join(f"{line}\n" for line in shown))
        color = has_color(sys.stdout)
        texts += [
            table.render(one.evidence, one.explanation, columns, color=color, is_long=self.is_long)
            for one in by_pid.values()
        ]
        say("\n".join(texts), end="")

    def _show_changes(self, one: Explained, changes: Sequence[FindingChange[Finding]]) -> None:
        now_s = time.time()
        for change in changes:
            if self.as_json:
                say(json.dumps(table.change_as_json(one.evidence, change, now_s)))
            else:
                of_process = len(self.pids) > 1
                line = table.change_line(one.evidence, change, now_s, of_process=of_process)
                say(line, wraps=False)


def _failure_as_json(pid: int, error: EbpfprofError) -> dict[str, Any]:
    text = printable(in_one_line(str(error)))
    return {"pid": pid, "error": text, "exit_code": int(error.exit_code)}
