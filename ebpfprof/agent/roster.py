"""All Go processes of the machine: their services, and whether they may be recorded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.identity.service import OPTED_OUT
from ebpfprof.agent.scheduler import Candidate, Key
from ebpfprof.discovery.processes import not_answered, started_ns

if TYPE_CHECKING:
    from ebpfprof.agent.costs import Costs
    from ebpfprof.agent.identity.service import Identifier, Verdict
    from ebpfprof.agent.log import Log
    from ebpfprof.agent.settings import Settings
    from ebpfprof.discovery.processes import GoProcess, ProcessTable

UNSUPPORTED: Final = "unsupported"
FAILED: Final = "failed"
_FRESH_S: Final = 60.0
"""How long results for a process are reused; only an exec changes them."""
_CPUCLOCK_SCHED: Final = 2  # include/linux/posix-timers_types.h
_FIRST_PAUSE_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 3600.0
_NEW_WEIGHT: Final = 0.5


@dataclass(slots=True)
class Member:
    """A process of the machine."""

    about: GoProcess
    verdict: Verdict
    busy: float = 0.0
    """Its CPU use, in processors."""
    used_ns: int | None = None
    measured_s: float = 0.0
    failures: int = 0
    failed_until_s: float = 0.0
    """When (CLOCK_MONOTONIC) it may be tried again."""

    @property
    def key(self) -> Key:
        """Identifies the process."""
        return self.about.pid, self.about.started_ns

    def fail(self) -> None:
        """Recording failed: try again later, after a pause that doubles each time."""
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self.failures)
        self.failures = min(self.failures + 1, 16)
        self.failed_until_s = time.monotonic() + pause_s

    def change(self, about: GoProcess, verdict: Verdict) -> None:
        """It runs another program, or its file was moved: recording may work now."""
        self.about, self.verdict = about, verdict
        self.failures, self.failed_until_s = 0, 0.0

    def note_use(self) -> None:
        """Measure its CPU use since the last call."""
        now_s, used_ns = time.monotonic(), _cpu_ns(self.about.pid)
        if used_ns is not None and self.used_ns is not None and now_s > self.measured_s:
            busy = max(0, used_ns - self.used_ns) / 1e9 / (now_s - self.measured_s)
            self.busy += _NEW_WEIGHT * (busy - self.busy)
        self.used_ns, self.measured_s = used_ns, now_s


class Roster:
    """Surveys the machine. Its methods block; calls must not be concurrent."""

    def __init__(
        self, table: ProcessTable, identifier: Identifier, settings: Settings, log: Log
    ) -> None:
        self._table, self._identifier, self._log = table, identifier, log
        self.settings = settings
        self.members: dict[Key, Member] = {}
        self.too_young = 0
        """Processes of any program that were too young at the last survey."""
        self._unanswered: tuple[int, ...] = ()

    def survey(self) -> None:
        """Find the current processes. Raises KernelUnsupported."""
        survey = self._table.survey(least_age_s=self.settings.min_age, fresh_s=_FRESH_S)
        self.too_young = survey.too_young
        members = {}
        for about in survey.go:
            member = self.members.get((about.pid, about.started_ns))
            if member is None:
                member = Member(about, self._identifier.verdict(about))
            elif _is_another(member.about, about):
                member.change(about, self._identifier.verdict(about))
            member.about = about
            member.note_use()
            members[member.key] = member
        self.members = members
        self._notify(survey.unanswered)

    def judge(self, keys: Iterable[Key]) -> None:
        """Identify these processes again, and those that opted out: an annotation may be removed.

        Processes that ended keep their identity.
        """
        out = (key for key, member in self.members.items() if member.verdict.reason == OPTED_OUT)
        for key in {*keys, *out}:
            member = self.members.get(key)
            if member is None:
                continue
            verdict = self._identifier.verdict(member.about)
            if started_ns(member.about.pid) == member.about.started_ns:
                member.verdict = verdict

    def use(self, identifier: Identifier, settings: Settings) -> None:
        """Apply new settings to all processes."""
        self._identifier, self.settings = identifier, settings
        self.judge(list(self.members))

    def why_not(self, member: Member) -> str:
        """Why a process must not be recorded, as a word; "" if it may be."""
        about = member.about
        if member.verdict.reason:
            return member.verdict.reason
        if not about.supported and not (
            about.is_unknown_version and self.settings.allow_unknown_go
        ):
            return UNSUPPORTED
        return FAILED if time.monotonic() < member.failed_until_s else ""

    def candidates(self, costs: Costs, opened: Collection[Key]) -> list[Candidate]:
        """The processes that may be recorded. Those that are not `opened` cost more."""
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        window_s = self.settings.window
        return [
            Candidate(
                key,
                member.busy,
                (now_ns - member.about.started_ns) / 1e9,
                costs.of(key) if key in opened else costs.of(key, window_s),
            )
            for key, member in self.members.items()
            if not self.why_not(member)
        ]

    def refusals(self) -> Counter[str]:
        """How many processes must not be recorded, by reason."""
        refusals = Counter(self.why_not(member) for member in self.members.values())
        del refusals[""]
        return refusals

    def _notify(self, unanswered: tuple[int, ...]) -> None:
        if new := [pid for pid in unanswered if pid not in self._unanswered]:
            self._log.say(not_answered(new))
        self._unanswered = unanswered


def _is_another(known: GoProcess, now: GoProcess) -> bool:
    """Whether it runs another program than before, or the same one by another name."""
    return (known.executable, known.command) != (now.executable, now.command)


def _cpu_ns(pid: int) -> int | None:
    try:
        return time.clock_gettime_ns(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return None
