"""Builds the report of one process: its profiles, and what all kinds have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import ebpfprof
from ebpfprof.console.text import in_one_line, percent, printable
from ebpfprof.goruntime.process import GoTarget, for_user
from ebpfprof.overhead.cost import Overhead
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.delta import difference
from ebpfprof.profile.kind import Loader, ProfileKind
from ebpfprof.profile.losses import Loss, losses_since
from ebpfprof.profile.model import Lock, Profile
from ebpfprof.profilers.account import Coverage, RecordingAccount
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.registry import kind_named


@dataclass(frozen=True, slots=True)
class RecordingFacts:
    """The facts about the recording of one process, the same for all kinds.

    Times are CLOCK_MONOTONIC, except `started_unix_ns` and `until_unix_ns`, the time now.
    `own_cost` is what ebpfprof itself used until now, in words, "" to leave it out. `until_end`: it
    was to last until the process ends, so that an end is no early one. `traced` is a warning about
    a debugger, `unprobed` one about code without probes, or "". `losses` are those of this process.
    `no_go`: see RecordedTarget.
    """

    target: Target
    go: GoTarget | None
    kinds: tuple[str, ...]
    started_ns: int
    started_unix_ns: int
    ended_ns: int
    until_unix_ns: int = 0
    ending: TargetEnd | None = None
    until_end: bool = False
    traced: str = ""
    unprobed: str = ""
    overhead: Overhead | None = None
    own_cost: str = ""
    losses: Sequence[Loss] = ()
    no_go: str = ""

    def since(self, earlier: RecordingFacts | None) -> RecordingFacts:
        """Those of the time from `earlier` on; None, or without a start: from the first start."""
        if earlier is None or not earlier.started_unix_ns:
            return self
        return replace(
            self,
            started_ns=earlier.ended_ns,
            started_unix_ns=earlier.until_unix_ns,
            overhead=self.overhead and earlier.overhead and self.overhead - earlier.overhead,
            losses=losses_since(self.losses, earlier.losses),
        )


_Read = TypeVar("_Read")


@dataclass(eq=False, slots=True)
class WholeSums(Generic[_Read]):
    """Sums since the first start: the time between two of them is a difference of profiles."""

    read: _Read | None
    """What was read; None once there are profiles of it, so that only these take memory."""
    profiles: tuple[Profile, ...] = ()
    """The profiles, once somebody asked for them."""


@dataclass(slots=True)
class Report:
    """What to write and show about one process.

    `profiles` has one profile for each recorded kind, in order, then those that options add.
    Without names, profiles hold addresses, and `failure` says why. `hints` are sentences for the
    user about causes outside of the process: why names are missing, or a debugger. `overhead` is
    what recording cost the process, `coverage` for how much of the time a bounded recording
    recorded its waits. `records_waits`: waits were recorded, by probes.
    """

    target: Target
    profiles: list[Profile] = field(default_factory=list)
    locks: list[Lock] = field(default_factory=list)
    failure: Exception | None = None
    hints: list[str] = field(default_factory=list)
    overhead: Overhead | None = None
    bound: float = 0.0
    """The part of the process's CPU time that the recording may cost, 0 to 1; 0: no bound."""
    coverage: Coverage | None = None
    records_waits: bool = False
    sampled: str = ""
    """Which waits were recorded, a sentence, if not every one was."""
    by_handler: bool = False
    """Whether tables show sums by handler."""


class ReportBuilder:
    """Collects the profiles and remarks of all profilers about one process."""

    def __init__(
        self, facts: RecordingFacts, options: Options, earlier: RecordingFacts | None = None
    ) -> None:
        """Of the time from `earlier` to `facts`; None: from the first start."""
        self.recording = facts.since(earlier)
        """The facts about the time of the report."""
        self.options = options
        self._facts, self._earlier = facts, earlier
        self.report = Report(
            facts.target, overhead=self.recording.overhead, bound=options.max_overhead / 100
        )
        self._unnamed: list[str] = []
        self._accounts: dict[str, RecordingAccount] = {}

    def account(
        self,
        kind: ProfileKind,
        title: str,
        remarks: Sequence[str] = (),
        missing: Sequence[str] = (),
    ) -> RecordingAccount:
        """The account for a profile of this kind.

        `remarks` are sentences for this kind only, `missing` sentences about what we could not read
        from the process.
        """
        recording = self.recording
        target, go = recording.target, recording.go
        language = printable(go.binary.version.text) if go else "not Go"
        common = []
        if recording.no_go:
            common.append(recording.no_go)
        if go and go.assumption:
            common.append(go.assumption)
        if go and go.no_runtime_locks:
            common.append(go.no_runtime_locks)
        if self.report.failure:
            common.append(f"names are missing: {printable(in_one_line(str(self.report.failure)))}")
        if target.allowance.exceeded:
            common.append(self._given_up())
        common += missing
        if recording.ending:
            is_early = not recording.until_end or recording.ending.is_exec
            how = "ended early:" if is_early else "recorded until"
            common.append(f"{how} {recording.ending.text}")
        if recording.traced:
            common.append(recording.traced)
        if recording.unprobed and kind.loader.needs_go:
            common.append(recording.unprobed)
        return RecordingAccount(
            kind=kind.name,
            title=f"ebpfprof {ebpfprof.__version__}: {title} of process {target.pid} "
            f"({target.name}, {language})",
            sampling=self.options.sampling(kind.name),
            length_ns=recording.ended_ns - recording.started_ns,
            remarks=(*common, *remarks),
            overhead=recording.overhead,
            own_cost=recording.own_cost,
            losses=tuple(
                loss for loss in recording.losses if not loss.kinds or kind.name in loss.kinds
            ),
        )

    def add(self, profile: Profile, account: RecordingAccount) -> None:
        """Add a profile, with its account."""
        go = self.recording.go
        info = go.binary.build_info if go else None
        profile = replace(profile, module=info.module if info else "")
        count, _ = kind_named(profile.kind).shown
        account = replace(account, events=sum(sample.values[count] for sample in profile.samples))
        self._accounts[profile.kind] = account  # once all are known, _note_events() adds it
        self.report.profiles.append(profile)

    def add_since(
        self,
        report: Callable[[_Read, ReportBuilder], None],
        sums: WholeSums[_Read],
        since: WholeSums[_Read] | None,
    ) -> None:
        """Add the profiles of the time from `since` to `sums`; None: from the first start.

        `report` adds those from the first start. It is called once for each sums.
        """
        if since is None or self._earlier is None:
            if sums.read is None:
                self.report.profiles += sums.profiles
                return
            count = len(self.report.profiles)
            report(sums.read, self)
            self._note_events()
            sums.read, sums.profiles = None, tuple(self.report.profiles[count:])
            return
        earlier = {profile.kind: profile for profile in self._whole(report, since, self._earlier)}
        self.report.profiles += [
            difference(profile, earlier[profile.kind]) if profile.kind in earlier else profile
            for profile in self._whole(report, sums, self._facts)
        ]

    def _whole(
        self,
        report: Callable[[_Read, ReportBuilder], None],
        sums: WholeSums[_Read],
        facts: RecordingFacts,
    ) -> tuple[Profile, ...]:
        if sums.read is not None:
            builder = ReportBuilder(facts, self.options)
            builder.add_since(report, sums, None)
            whole = builder.finished()
            self.report.failure = self.report.failure or whole.failure
            self.report.hints += whole.hints
        return sums.profiles

    def fail(self, error: Exception) -> None:
        """Note why names are missing. The report continues without them."""
        self.report.failure = for_user(self.recording.target, error)

    def note_given_up(self, events: str, count: float, total: float) -> None:
        """Note that `count` of `total` events lack names: finding them would take too much."""
        if count:
            self._unnamed.append(f"{percent(count / total)} of its {events}")

    def finished(self) -> Report:
        """The report, with its profiles in the order in which the user named the kinds."""
        if self.recording.target.allowance.exceeded:
            self.report.hints.append(self._given_up())
        # Who asked for just these kinds has read it when the recording began.
        if self.recording.no_go and self.recording.kinds != self.options.kinds:
            self.report.hints.append(f"{self.recording.no_go}.")
        self._note_events()
        self.report.by_handler = self.options.by_handler
        order = {name: index for index, name in enumerate(self.recording.kinds)}
        self.report.profiles.sort(key=lambda profile: order.get(profile.kind, len(order)))
        return self.report

    def _note_events(self) -> None:
        """Losses of several kinds are a part of the events of all, not of those of an empty one."""
        most: dict[Loader, int] = {}
        for name, account in self._accounts.items():
            loader = kind_named(name).loader
            most[loader] = max(most.get(loader, 0), account.events)
        for index, profile in enumerate(self.report.profiles):
            if profile.kind in self._accounts:  # else it is a difference, with its account
                events = most[kind_named(profile.kind).loader]
                account = self._accounts[profile.kind]
                if account.events != events:
                    account = self._accounts[profile.kind] = replace(account, events=events)
                if profile.account is not account:  # its comments take long
                    self.report.profiles[index] = profile.accounted(account)

    def _given_up(self) -> str:
        """A sentence about names that are missing because finding them would take too much.

        It says how many events lack names; for locks we don't know.
        """
        target = self.recording.target
        lacking = " and ".join(self._unnamed)
        what = f"{lacking} lack names or lines" if lacking else "Locks may lack names"
        return (
            f"some names of process {target.pid} ({target.name}) are missing: reading its files "
            f"takes {target.allowance.exceeded}. {what}."
        )
