"""Reads the sums of live targets again and again, for `ebpfprof top`; writes their profiles."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ebpfprof.console.output_file import OutputFile, default_name
from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.text import in_one_line, printable
from ebpfprof.export import pprof
from ebpfprof.export.tables.handlers import handler_name
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.reports import ProcessSums
from ebpfprof.recording.target import LiveTarget
from ebpfprof.top.rows import Moment, Snapshot, TargetLine
from ebpfprof.top.table import TopTable
from ebpfprof.top.tracing import TopTrace
from ebpfprof.top.views import View, views_of

if TYPE_CHECKING:  # what reads executables is imported late
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.report_builder import Report

_MAX_OWN_SHARE: Final = 0.2


class Poller:
    """Targets that are recorded, and the tables that are made of them."""

    def __init__(
        self,
        session: LiveSession,
        targets: Sequence[LiveTarget],
        starts: Sequence[ProcessSums],
        options: Options,
        trace: TopTrace,
    ) -> None:
        """Of `targets` that record already; `starts` are the sums of each when it was started."""
        self.trace = trace
        self._session = session
        self._targets = targets
        self._starts = starts
        self._started_ns = time.monotonic_ns()
        kinds = {kind for target in targets for kind in target.kinds}
        self.views: Sequence[View] = views_of(kinds, options)
        """The tables that there are."""
        self._tables = {view: TopTable(view.name) for view in self.views}
        self._own_before = time.process_time_ns(), self._started_ns

    @property
    def has_ended(self) -> bool:
        """Whether all targets are gone."""
        return all(target.ending for target in self._targets)

    def nothing(self) -> Moment:
        """The moment before the first sample."""
        return Moment({}, self._target_lines(), 0, 0.0)

    def sample(self) -> Moment:
        """All tables as they are now."""
        of_targets = list(zip(self._targets, self._reports(), strict=True))
        readings = {
            view.name: table.read([_snapshot(view, *target) for target in of_targets])
            for view, table in self._tables.items()
        }
        reports = [report for _, report in of_targets]
        notes = [f"names are missing: {r.failure}" for r in reports if r.failure]
        notes += dict.fromkeys(in_one_line(hint) for r in reports for hint in r.hints)
        notes += [self.trace.failure] if self.trace.failure else []
        return Moment(
            readings=readings,
            targets=self._target_lines(),
            uptime_ns=time.monotonic_ns() - self._started_ns,
            own_cpu=self._own_cpu(),
            overhead_share=self._overhead_share(),
            recorded_share=min((r.coverage.share for r in reports if r.coverage), default=1.0),
            losses=self._session.losses(),
            notes=notes,
            tracing=self.trace.state,
        )

    def write(self) -> list[str]:
        """Write a pprof file of each profile since the start; their names.

        Raises OutputError and what else may go wrong.
        """
        written = []
        when = time.localtime()
        for target, report in zip(self._targets, self._reports(), strict=True):
            for profile in target.labelled(report.profiles):
                name = default_name(target.name, target.pid, profile.kind, when)
                file = OutputFile.prepare(Path(name), owner=invoking_user(), if_taken="number")
                try:
                    file.commit(pprof.encode(profile))
                finally:
                    file.discard()
                written.append(file.name)
        return written

    def _reports(self) -> list[Report]:
        """What was recorded of each target since the start."""
        session = self._session
        return [session.report(session.sums(start.target), start) for start in self._starts]

    def _target_lines(self) -> list[TargetLine]:
        return [
            TargetLine(
                target.pid,
                target.name,
                target.go_version or "",
                target.ending.text if target.ending else "",
            )
            for target in self._targets
        ]

    def _overhead_share(self) -> float:
        overheads = [self._session.overhead(target) for target in self._targets]
        cpu_ns = sum(overhead.cpu_ns for overhead in overheads)
        lost_ns = sum(overhead.ns for overhead in overheads) + self.trace.lost_ns
        return min(max(lost_ns / cpu_ns, 0.0), 1.0) if cpu_ns > 0 else 0.0

    def _own_cpu(self) -> float:
        before, before_ns = self._own_before
        self._own_before = now, now_ns = time.process_time_ns(), time.monotonic_ns()
        return (now - before) / max(now_ns - before_ns, 1)


def _snapshot(view: View, target: LiveTarget, report: Report) -> Snapshot:
    """What a view shows of a target."""
    recorded = next((one for one in report.profiles if one.kind == view.kind.name), None)
    profile = view.kind.in_tables(recorded) if recorded else None
    handlers = None
    if profile and target.handlers:
        (labelled,) = target.labelled([profile])
        handlers = [handler_name(sample) for sample in labelled.samples]
    return Snapshot(
        target.pid,
        recorded.duration_ns if recorded else 0,
        profile,
        report.locks if view.rows == "locks" else (),
        is_over=target.ending is not None,
        handlers=handlers,
    )


class PollingThread:
    """A thread that polls every `interval_s` seconds, so that keys never wait for that.

    A context manager.
    """

    def __init__(self, poller: Poller, interval_s: float) -> None:
        self._poller = poller
        self._interval_s = interval_s
        self._asked = threading.Event()
        self._closing = self._is_to_write = False
        self._moment: Moment | None = None
        self._thread = threading.Thread(target=self._run, name="ebpfprof-top", daemon=True)
        self.message = ""
        """What was written, or why not, until the caller empties it."""
        poller.trace.notify = self._notify
        self.error: BaseException | None = None
        """Why the thread ended, if it did."""

    def moment(self) -> Moment | None:
        """The last sample; None if the caller has it already."""
        moment, self._moment = self._moment, None
        return moment

    def write(self) -> None:
        """Have the files written soon."""
        self._is_to_write = True
        self._asked.set()

    def trace(self) -> None:
        """Have the last seconds of the trace written soon, or the next ones recorded."""
        self._poller.trace.press()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        self._asked.set()
        self._thread.join()

    def _run(self) -> None:
        next_s = time.monotonic() + min(self._interval_s, 0.5)  # the first sample comes earlier
        has_ended = False
        try:
            while not self._closing:
                # Nothing more comes after all have ended: they are read one last time.
                self._asked.wait(None if has_ended else max(next_s - time.monotonic(), 0))
                self._asked.clear()
                if self._is_to_write:
                    self._is_to_write = False
                    self.message = self._written()
                began_s = time.monotonic()
                if not has_ended and began_s >= next_s and not self._closing:
                    has_ended = self._poller.has_ended
                    self._moment = self._poller.sample()
                    took_s = time.monotonic() - began_s
                    next_s = began_s + max(self._interval_s, took_s / _MAX_OWN_SHARE)
        except BaseException as error:  # any error: the main thread raises it
            self.error = error

    def _notify(self, message: str) -> None:
        self.message = message

    def _written(self) -> str:
        try:
            names = ", ".join(map(printable, self._poller.write()))
        except Exception as error:  # whatever it is: the table continues
            return f"Not written: {error}"
        return f"Written: {names or 'nothing'}"
