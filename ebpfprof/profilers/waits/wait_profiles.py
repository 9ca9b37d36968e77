"""Turns the recorded waits of one process into its block and mutex profiles and its locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.profile.behaviour import IdleBehaviour
from ebpfprof.profile.idle_comments import idle_comments
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Label
from ebpfprof.profilers.labels import chosen
from ebpfprof.profilers.report_builder import ReportBuilder
from ebpfprof.profilers.waits.coverage import WaitsCoverage
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, OPEN, WAKERS
from ebpfprof.profilers.waits.locks import LockTable, lock_use
from ebpfprof.profilers.waits.open_waits import (
    OpenWait,
    ParkedAtEnd,
    StandingGoroutines,
    open_waits,
    standing_waits,
)
from ebpfprof.profilers.waits.rows import Hold, LastWait, StackTotal
from ebpfprof.profilers.waits.wait_samples import wait_samples
from ebpfprof.profilers.waits.wait_stacks import StackTranslator

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.state_sums import GoroutineState

# Without Go's own profiler, unlock2 releases the lock with an exchange that also clears the hint
# that a thread sleeps for it (runtime/lock_spinbit.go).
_OF_RUNTIME_LOCKS: Final = (
    "the runtime's own locks (runtime.unlock): counts are lower bounds. While a woken thread is "
    "on its way to a lock, releases of the lock wake no other thread, and are not recorded; the "
    "next recorded release is charged for the waits. With Go's own mutex profiler on, all are "
    "recorded"
)
_SPLIT: Final = (
    "the wakers of a stack that waited together have its count and delay in the block profile, "
    "split among them as the recorded waits are: [not known] where none was recorded"
)
_CUT_BY_GO: Final = "cut off at the depth where Go cuts them off: the stacks of {} events"


@dataclass(slots=True, kw_only=True)
class ReadWaits:
    """What the kernel recorded of the waits of one process.

    `kinds` are those to report. `holds` has a key for each semaphore, `last_waits` for each
    runtime.g; `standing` replaces that where the probes were detached at times. `parked` is None
    unless the user asked for open waits and we could read them; `unread` is why we could not.
    """

    kinds: tuple[ProfileKind, ...]
    totals: Sequence[StackTotal] = ()
    holds: Mapping[int, Hold] = field(default_factory=dict)
    last_waits: Mapping[int, LastWait] = field(default_factory=dict)
    coverage: WaitsCoverage | None = None
    parked: ParkedAtEnd | None = None
    standing: StandingGoroutines | None = None
    unread: Exception | None = None
    hanging: Mapping[GoroutineState, tuple[int, int, int]] = field(default_factory=dict)
    """See LongWaits.hanging."""
    idle: Mapping[tuple[int, ...], IdleBehaviour] = field(default_factory=dict)
    """Goroutines that are idle by behaviour, by the return addresses of their stacks."""
    remarks: tuple[str, ...] = ()
    """Sentences for the comments of each profile."""


def report(
    waits: ReadWaits, go: GoTarget, translator: StackTranslator, builder: ReportBuilder
) -> None:
    """Add the profiles of `waits.kinds`, and with --by-lock the locks."""
    _WaitReporter(waits, go, translator, builder).report()


class _WaitReporter:
    def __init__(
        self,
        waits: ReadWaits,
        go: GoTarget,
        translator: StackTranslator,
        builder: ReportBuilder,
    ) -> None:
        self._waits = waits
        self._go = go
        self._translator = translator
        self._builder = builder

    def report(self) -> None:
        waits, options = self._waits, self._builder.options
        self._builder.report.coverage = waits.coverage
        self._builder.report.records_waits = True
        if waits.coverage and waits.coverage.is_scaled:
            self._builder.report.sampled = (
                f"Sampled ({waits.coverage.how}). Use --max-overhead 0 to record every wait."
            )
        waiting = self._open_waits()
        table = self._lock_table([row.total for row in waiting])

        def labels(total: StackTotal) -> tuple[Label, ...]:
            of_lock = table.labels(total.sema) if table and options["lock_labels"] else ()
            return chosen(total.labels, options.labels) + of_lock

        for kind in (kind for kind in waits.kinds if kind is not OPEN):
            totals = [(total, labels(total)) for total in waits.totals if total.kind == kind.name]
            self._add(kind, totals, f"{kind.title} profile")
        if OPEN in waits.kinds:
            totals = [(row.total, row.labels + labels(row.total)) for row in waiting]
            self._add(OPEN, totals, "waits still open at the end")

    def _open_waits(self) -> list[OpenWait]:
        read, recording = self._waits, self._builder.recording
        if read.parked is None:
            return []
        if read.standing:
            waits = standing_waits(read.parked, read.standing, recording.started_ns)
        else:
            waits = open_waits(
                read.parked,
                read.last_waits,
                recording.started_ns,
                all_known=not any(loss.name == "waits_full" for loss in recording.losses),
            )
        if {BLOCK, WAKERS} & set(read.kinds):
            return waits
        return [wait for wait in waits if lock_use(self._translator, wait.total.return_pcs)]

    def _lock_table(self, waiting: Sequence[StackTotal]) -> LockTable | None:
        """The locks, if the options ask for them and we can find them."""
        waits, options = self._waits, self._builder.options
        if not (options["by_lock"] or options["lock_labels"]):
            return None
        try:
            totals = [total for total in waits.totals if total.waker is None]
            table = LockTable(self._go, self._translator, totals, waits.holds, waiting)
            locks = table.locks() if options["by_lock"] else []
            for total in waits.totals:
                table.labels(total.sema)  # finds the names, or fails
        except Exception as error:  # any error: keep the profiles without locks
            self._builder.fail(error)
            return None
        if options["by_lock"]:
            self._builder.report.locks = locks
        return table

    def _add(
        self,
        kind: ProfileKind,
        totals: Sequence[tuple[StackTotal, tuple[Label, ...]]],
        title: str,
    ) -> None:
        waits, builder, recording = self._waits, self._builder, self._builder.recording
        samples, cut, spread, failure, given_up = wait_samples(
            self._translator, totals, waits.idle if kind is not MUTEX else {}
        )
        builder.note_given_up(kind.events, given_up, sum(total.count for total, _ in totals))
        if failure:
            builder.fail(failure)
        remarks = [*waits.remarks]
        if kind is MUTEX and self._go.runtime_locks:
            remarks.append(_OF_RUNTIME_LOCKS)
        if kind is OPEN and waits.standing:
            remarks.append(str(waits.standing))
        if kind is WAKERS and waits.coverage and waits.coverage.is_scaled:
            remarks.append(_SPLIT)
        missing = []
        if waits.unread:
            missing.append(f"open waits are missing: {printable(in_one_line(str(waits.unread)))}")
        account = replace(
            builder.account(kind, title, remarks, missing),
            coverage=None if kind.is_moment else waits.coverage,
            spread=spread,
            counted={_CUT_BY_GO: cut},
            idle=idle_comments(kind.name, samples),
        )
        profile = kind.make_profile(
            samples,
            self._go.mappings,
            time_ns=recording.started_unix_ns,
            duration_ns=account.length_ns,
        )
        has_labels = bool(builder.options["lengths"])
        builder.add(replace(profile, has_length_labels=has_labels), account)
