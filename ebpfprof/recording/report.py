"""What was recorded of one target → its profiles and its locks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import ebpfprof
from ebpfprof.console.text import percent, printable
from ebpfprof.goruntime.process import GoTarget, for_user
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Overhead
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.model import Kind, Label, Lock, Profile, cpu_profile, wait_profile
from ebpfprof.profilers.cpu.unwinder import CUT_TEXTS
from ebpfprof.profilers.labels import chosen
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.locks import LockTable, place
from ebpfprof.profilers.waits.open_waits import OpenWait, Parked, open_waits
from ebpfprof.profilers.waits.rows import Begun, Hold, StackTotal
from ebpfprof.profilers.waits.stacks import StackTranslator, wait_samples
from ebpfprof.recording.account import RecordingAccount

if TYPE_CHECKING:  # not everybody needs them
    from ebpfprof.process.mappings import MappedObjects
    from ebpfprof.profilers.cpu.sample_table import CpuStack
    from ebpfprof.profilers.cpu.stacks import CpuTranslator
    from ebpfprof.profilers.waits.window_sums import Watched

_EVENTS = {"block": "waits", "mutex": "releases", "open": "open waits"}

# Without Go's own profiler, unlock2 releases the lock with an exchange that also takes back the
# hint that somebody sleeps for it (runtime/lock_spinbit.go).
_OF_RUNTIME_LOCKS = (
    "the runtime's own locks (runtime.unlock): counts are lower bounds. While a thread is on its "
    "way to a lock, who releases it wakes nobody and is not seen; what others waited is charged "
    "to the next release that is. That is not so while the program has its own mutex profiler on"
)

_CUT_BY_GO = "cut off where Go cuts them off, too: the stacks of {} events"
_CUT = "{{}} samples with a stack cut short: {}"


@dataclass(frozen=True, slots=True)
class Recording:
    """All that is known of one target when the recording is over.

    Times are of CLOCK_MONOTONIC, but for `started_unix_ns`. `holds` is by semaphore, `begun` by
    runtime.g; `stacks` are CPU samples, taken by `sampler`; `parked` is None unless open waits were
    asked for and could be read; `unread` is why they could not. `own_cost` is in words what
    ebpfprof used until now, "" if that is not to be told. `traced`: see Recorded. `losses` are
    those of all targets together.
    """

    target: Target
    go: GoTarget | None
    objects: "MappedObjects | None"
    kinds: tuple[Kind, ...]
    started_ns: int
    started_unix_ns: int
    ended_ns: int
    ending: TargetEnd | None
    traced: str
    overhead: Overhead | None
    own_cost: str
    watched: "Watched | None"
    totals: Sequence[StackTotal]
    holds: Mapping[int, Hold]
    begun: Mapping[int, Begun]
    parked: Parked | None
    unread: Exception | None
    stacks: "Mapping[CpuStack, int]"
    sampler: str
    losses: Sequence[Loss]


@dataclass(slots=True)
class Report:
    """What to write and show of one target.

    One profile for each kind that was recorded, in order; then, if asked for, that of the waits
    that are open. Where names can't be had, profiles hold addresses, and `failure` says why.
    `hints` are sentences for the user, about what lies outside of the target: names that are
    missing for it, debuggers. `cost` says what recording took the target, `watched` how much of the
    time it was watched for waits, where that was bounded.
    """

    target: Target
    profiles: list[Profile] = field(default_factory=list)
    locks: list[Lock] = field(default_factory=list)
    failure: Exception | None = None
    hints: list[str] = field(default_factory=list)
    cost: str = ""
    watched: "Watched | None" = None


@dataclass(slots=True)
class Names:
    """What turns the addresses of one target into names; keeps what it found between reports."""

    waits: StackTranslator | None = None
    cpu: "CpuTranslator | None" = None


def report(recording: Recording, options: Options, names: Names | None = None) -> Report:
    """Find the names for what was recorded; of later recordings of a target with its `names`."""
    return _Reporter(recording, options, names or Names()).report()


class _Reporter:
    def __init__(self, recording: Recording, options: Options, names: Names) -> None:
        self._recording = recording
        self._options = options
        self._names = names
        cost = str(recording.overhead or "")
        self._report = Report(recording.target, cost=cost, watched=recording.watched)
        self._unnamed: list[str] = []

    def report(self) -> Report:
        if self._recording.go:
            self._report_waits(self._recording.go)
        if "cpu" in self._recording.kinds:
            self._add_cpu()
        if self._recording.target.allowance.exceeded:
            self._report.hints.append(self._given_up())
        order = (*self._recording.kinds, "open")
        self._report.profiles.sort(key=lambda profile: order.index(profile.kind))
        return self._report

    def _report_waits(self, go: GoTarget) -> None:
        self._go = go
        self._translator = self._names.waits = self._names.waits or StackTranslator(go)
        recording, options = self._recording, self._options
        waiting = self._open_waits()
        table = self._lock_table([each.total for each in waiting])

        def labels(total: StackTotal) -> tuple[Label, ...]:
            of_lock = table.labels(total.sema) if table and options.lock_labels else ()
            return chosen(total.labels, options.labels) + of_lock

        for kind in (kind for kind in recording.kinds if kind != "cpu"):
            totals = [(total, labels(total)) for total in recording.totals if total.kind == kind]
            self._add(kind, totals, f"{kind} profile", options.sampling(kind))
        if options.open_waits:
            totals = [(each.total, each.labels + labels(each.total)) for each in waiting]
            self._add("open", totals, "waits still open at the end", "every goroutine")

    def _add_cpu(self) -> None:
        """The CPU profile, with whatever names can be found."""
        from ebpfprof.kernel.kallsyms import KernelSymbols
        from ebpfprof.profilers.cpu.stacks import KERNEL, CpuTranslator

        recording, options = self._recording, self._options
        if recording.objects is None:
            return
        translator = self._names.cpu or CpuTranslator(recording.objects, recording.go)
        self._names.cpu = translator
        in_kernel = any(stack.kernel_pcs for stack in recording.stacks)
        kernel = KernelSymbols.shared() if in_kernel else None
        period_ns = 1_000_000_000 // options.hz
        labels = {stack: chosen(stack.labels, options.labels) for stack in recording.stacks}
        samples = translator.samples(recording.stacks, period_ns, labels, kernel)
        if translator.failure:
            self._report.failure = for_user(recording.target, translator.failure)
        total = sum(recording.stacks.values())
        self._note_given_up("samples", translator.given_up, total)
        remarks = [f"sampled by {recording.sampler}"]
        if kernel and kernel.hidden:
            remarks.append(kernel.hidden_text)
            self._report.hints.append(kernel.hidden_text)
        remarks += [f"names may be missing: {warning}" for warning in recording.objects.warnings]
        cut = Counter[str]()
        for stack, count in recording.stacks.items():
            if stack.ending in CUT_TEXTS:
                cut[_CUT.format(CUT_TEXTS[stack.ending])] += count
        account = self._account("cpu", "CPU profile", options.sampling("cpu"), remarks)
        mappings = recording.objects.mappings
        self._report.profiles.append(
            cpu_profile(
                samples,
                (*mappings, KERNEL) if kernel else mappings,
                period_ns=period_ns,
                time_ns=recording.started_unix_ns,
                duration_ns=account.length_ns,
            ).accounted(replace(account, counted=cut))
        )

    def _lock_table(self, waiting: Sequence[StackTotal]) -> LockTable | None:
        """The locks, if they are asked for and can be told apart."""
        recording, options = self._recording, self._options
        if not (options.by_lock or options.lock_labels):
            return None
        try:
            table = LockTable(
                self._go, self._translator, recording.totals, recording.holds, waiting
            )
            locks = table.locks()
        except Exception as error:  # whatever it is: what was recorded is worth more than names
            self._report.failure = for_user(recording.target, error)
            return None
        if options.by_lock:
            self._report.locks = locks
        return table

    def _open_waits(self) -> list[OpenWait]:
        recording = self._recording
        if recording.parked is None:
            return []
        found = open_waits(
            recording.parked,
            recording.begun,
            recording.started_ns,
            all_known=not any(loss.name == "waits_full" for loss in recording.losses),
        )
        if "block" in self._recording.kinds:
            return found
        return [each for each in found if place(self._translator, each.total.return_pcs)]

    def _add(
        self,
        kind: Kind,
        totals: Sequence[tuple[StackTotal, tuple[Label, ...]]],
        title: str,
        sampling: str,
    ) -> None:
        recording = self._recording
        samples, cut, spread, failure, given_up = wait_samples(self._translator, totals)
        self._note_given_up(_EVENTS[kind], given_up, sum(total.count for total, _ in totals))
        if failure:
            self._report.failure = for_user(recording.target, failure)
        remarks = [_OF_RUNTIME_LOCKS] if kind == "mutex" and self._go.runtime_locks else []
        account = replace(
            self._account(kind, title, sampling, remarks),
            watched=recording.watched if kind != "open" else None,
            spread=spread,
            counted={_CUT_BY_GO: cut},
        )
        self._report.profiles.append(
            wait_profile(
                kind,
                samples,
                self._go.mappings,
                time_ns=recording.started_unix_ns,
                duration_ns=account.length_ns,
            ).accounted(account)
        )

    def _note_given_up(self, what: str, count: int, total: float) -> None:
        if count:
            self._unnamed.append(f"{percent(count / total)} of its {what}")

    def _given_up(self) -> str:
        """That names are missing since it would have taken too much to find them, and of how many.

        Of locks it can't be told of how many.
        """
        target = self._recording.target
        lacking = " and ".join(self._unnamed)
        what = f"{lacking} lack names or lines" if lacking else "Locks may lack names"
        return (
            f"names of process {target.pid} ({target.name}) were given up: to read its files "
            f"takes {target.allowance.exceeded}. {what}."
        )

    def _account(
        self, kind: Kind, title: str, sampling: str, more: Sequence[str]
    ) -> RecordingAccount:
        """What is to be said of a profile; `more` are remarks that only this kind has."""
        recording = self._recording
        target, go = recording.target, recording.go
        language = printable(go.binary.version.text) if go else "not Go"
        remarks = []
        if go and go.assumption:
            remarks.append(go.assumption)
        if go and go.no_runtime_locks:
            remarks.append(go.no_runtime_locks)
        if self._report.failure:
            remarks.append(f"names are missing: {printable(str(self._report.failure))}")
        if target.allowance.exceeded:
            remarks.append(self._given_up())
        if recording.unread:
            remarks.append(f"open waits are missing: {printable(str(recording.unread))}")
        if recording.ending:
            remarks.append(f"ended early: {recording.ending.text}")
        if recording.traced:
            remarks.append(recording.traced)
        return RecordingAccount(
            kind=kind,
            title=f"ebpfprof {ebpfprof.__version__}: {title} of process {target.pid} "
            f"({target.name}, {language})",
            sampling=sampling,
            length_ns=recording.ended_ns - recording.started_ns,
            remarks=(*remarks, *more),
            overhead=recording.overhead,
            own_cost=recording.own_cost,
            losses=tuple(recording.losses),
        )
