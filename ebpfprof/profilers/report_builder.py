"""What was recorded of one process → its profiles: what all kinds have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import ebpfprof
from ebpfprof.console.text import percent, printable
from ebpfprof.goruntime.process import GoTarget, for_user
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Overhead
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Lock, Profile
from ebpfprof.profilers.account import Coverage, RecordingAccount
from ebpfprof.profilers.options import Options


@dataclass(frozen=True, slots=True)
class Recording:
    """What is known of the recording of one process, whatever was recorded.

    Times are of CLOCK_MONOTONIC, but for `started_unix_ns`. `own_cost` is in words what ebpfprof
    used until now, "" if that is not to be told. `traced` is a warning of a debugger, or "".
    `losses` are those of all processes together.
    """

    target: Target
    go: GoTarget | None
    kinds: tuple[str, ...]
    started_ns: int
    started_unix_ns: int
    ended_ns: int
    ending: TargetEnd | None = None
    traced: str = ""
    overhead: Overhead | None = None
    own_cost: str = ""
    losses: Sequence[Loss] = ()


@dataclass(slots=True)
class Report:
    """What to write and show of one process.

    One profile for each kind that was recorded, in order; then those that an option adds. Where
    names can't be had, profiles hold addresses, and `failure` says why. `hints` are sentences for
    the user, about what lies outside of the process: names that are missing for it, debuggers.
    `cost` says what recording took the process, `coverage` how much of the time it was watched for
    waits, where that was bounded.
    """

    target: Target
    profiles: list[Profile] = field(default_factory=list)
    locks: list[Lock] = field(default_factory=list)
    failure: Exception | None = None
    hints: list[str] = field(default_factory=list)
    cost: str = ""
    coverage: Coverage | None = None


class ReportBuilder:
    """Collects what profilers have to report of one process."""

    def __init__(self, recording: Recording, options: Options) -> None:
        self.recording = recording
        self.options = options
        self.report = Report(recording.target, cost=str(recording.overhead or ""))
        self._unnamed: list[str] = []

    def account(
        self,
        kind: ProfileKind,
        title: str,
        remarks: Sequence[str] = (),
        missing: Sequence[str] = (),
    ) -> RecordingAccount:
        """What is to be said of a profile.

        `remarks` are those that only this kind has, `missing` say what could not be read of the
        process.
        """
        recording = self.recording
        target, go = recording.target, recording.go
        language = printable(go.binary.version.text) if go else "not Go"
        common = []
        if go and go.assumption:
            common.append(go.assumption)
        if go and go.no_runtime_locks:
            common.append(go.no_runtime_locks)
        if self.report.failure:
            common.append(f"names are missing: {printable(str(self.report.failure))}")
        if target.allowance.exceeded:
            common.append(self._given_up())
        common += missing
        if recording.ending:
            common.append(f"ended early: {recording.ending.text}")
        if recording.traced:
            common.append(recording.traced)
        return RecordingAccount(
            kind=kind.name,
            title=f"ebpfprof {ebpfprof.__version__}: {title} of process {target.pid} "
            f"({target.name}, {language})",
            sampling=self.options.sampling(kind.name),
            length_ns=recording.ended_ns - recording.started_ns,
            remarks=(*common, *remarks),
            overhead=recording.overhead,
            own_cost=recording.own_cost,
            losses=tuple(recording.losses),
        )

    def add(self, profile: Profile, account: RecordingAccount) -> None:
        """Add a profile, with what is to be said of it."""
        self.report.profiles.append(profile.accounted(account))

    def fail(self, error: Exception) -> None:
        """Names are missing: what was recorded is worth more."""
        self.report.failure = for_user(self.recording.target, error)

    def note_given_up(self, events: str, count: float, total: float) -> None:
        """Of `total` events, so many lack names since finding them would have taken too much."""
        if count:
            self._unnamed.append(f"{percent(count / total)} of its {events}")

    def finished(self) -> Report:
        """The report, its profiles in the order in which they were asked for."""
        if self.recording.target.allowance.exceeded:
            self.report.hints.append(self._given_up())
        order = {name: index for index, name in enumerate(self.recording.kinds)}
        self.report.profiles.sort(key=lambda profile: order.get(profile.kind, len(order)))
        return self.report

    def _given_up(self) -> str:
        """That names are missing since it would have taken too much to find them, and of how many.

        Of locks it can't be told of how many.
        """
        target = self.recording.target
        lacking = " and ".join(self._unnamed)
        what = f"{lacking} lack names or lines" if lacking else "Locks may lack names"
        return (
            f"names of process {target.pid} ({target.name}) were given up: to read its files "
            f"takes {target.allowance.exceeded}. {what}."
        )
