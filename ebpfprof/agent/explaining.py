"""Explains the recorded processes in turn: what is wrong with each, as `ebpfprof explain` says it.

One process at a time is observed for some seconds, beside its recording. All observations together
use a part of the node's budget, and none begins while the budget is overspent.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.discovery.processes import started_ns
from ebpfprof.errors import EbpfprofError, NoSuchProcess, TargetGone
from ebpfprof.findings.changes import FindingChanges
from ebpfprof.findings.words import place
from ebpfprof.profile.service import ServiceFinding, ServiceFindings

if TYPE_CHECKING:
    from ebpfprof.agent.log import Log
    from ebpfprof.agent.roster import Member
    from ebpfprof.agent.rounds import Rounds
    from ebpfprof.agent.scheduler import Key
    from ebpfprof.agent.sinks.sink import Item
    from ebpfprof.findings.finding import Finding

LENGTH_S: Final = 10.0
"""How long a process is observed."""
SETTLED_S: Final = 60.0
"""How long a process is recorded before it is observed: programs that start look like leaks."""
_MOST_OF_BUDGET: Final = 0.25
TICK_S: Final = 0.25
_VARIES: Final = re.compile(
    r"(?<![\w.:])[0-9][0-9.,]*+(?: ± [0-9]++)?(?: [^\W\d]++| %)?(?=[\s,;)]|$)"
)
"""Quantities with their units in titles: not addresses, nor numbers in names."""


class ProcessExplanation(NamedTuple):
    """What is wrong with a process, and the CPU time that it took to find that, in seconds."""

    findings: Sequence[Finding]
    cpu_s: float


Find = Callable[[int, float, Callable[[float], bool]], ProcessExplanation]
"""Observes the process with a pid for some seconds, or until a function returns True that gets the
seconds so far, and returns what is wrong with it. Blocks; raises any of ebpfprof.errors."""


class ExplainingInTurn:
    """Explains the processes that `rounds` records, and passes the findings to `give`."""

    def __init__(self, rounds: Rounds, find: Find, log: Log, give: Callable[[Item], None]) -> None:
        self._rounds, self._find, self._log, self._give = rounds, find, log, give
        self._stopping = threading.Event()
        self._began_s = -float("inf")  # the last observation, CLOCK_MONOTONIC
        self._explained_s: dict[Key, float] = {}
        self._latest: dict[Key, ServiceFindings] = {}
        self._changes: dict[Key, FindingChanges[ServiceFinding]] = {}

    @property
    def findings(self) -> list[ServiceFindings]:
        """What is wrong with each process that runs: what is found, and is not gone since.

        Any thread may ask.
        """
        return list(self._latest.values())

    async def run(self) -> None:
        """Explain processes until stop()."""
        while not self._stopping.is_set():
            self._forget()
            if member := self._due():
                await self._explain(member)
            await asyncio.sleep(TICK_S)

    def stop(self) -> None:
        """End the present observation at once, and begin no other."""
        self._stopping.set()

    def _due(self) -> Member | None:
        """The process to explain now: the one that was explained longest ago."""
        rounds, now_s = self._rounds, time.monotonic()
        apart_s = rounds.settings.explain
        settled_s = min(rounds.settings.window, SETTLED_S)
        members = rounds.recorded_for(settled_s)
        if not apart_s or not members or not rounds.has_budget:
            return None
        pause_s = max(apart_s / len(members), rounds.explanation_s(_MOST_OF_BUDGET))
        if now_s < self._began_s + pause_s:
            return None
        never = -float("inf")
        longest = min(members, key=lambda member: self._explained_s.get(member.key, never))
        is_due = self._explained_s.get(longest.key, never) + apart_s <= now_s
        return longest if is_due else None

    async def _explain(self, member: Member) -> None:
        """Observe a process, and report what changed."""
        self._began_s = self._explained_s[member.key] = time.monotonic()
        self._rounds.note_explanation()
        try:
            explained = await asyncio.to_thread(
                self._find, member.about.pid, LENGTH_S, lambda _: self._stopping.is_set()
            )
        except (NoSuchProcess, TargetGone):
            return
        except EbpfprofError as error:
            self._log.say(f"Process {member.about.pid} could not be explained: {error}")
            return
        except Exception as error:  # a rule that fails must not end the agent
            problem = f"{type(error).__name__}: {error}"
            self._log.say(f"Process {member.about.pid} could not be explained: {problem}")
            return
        self._rounds.costs.note_explanation(explained.cpu_s)
        is_same = started_ns(member.about.pid) == member.about.started_ns
        if is_same and not self._stopping.is_set():
            self._report(member, explained.findings)

    def _report(self, member: Member, found: Iterable[Finding]) -> None:
        changes = self._changes.setdefault(member.key, FindingChanges())
        now_s = time.time()
        findings: dict[Hashable, ServiceFinding] = {}
        for finding in found:
            one = service_finding(finding, now_s - LENGTH_S)
            if before := changes.lasting.get(one.key):
                one = replace(one, since_s=before.since_s)
            findings.setdefault(one.key, one)
        changed = changes.add(findings)
        about = member.about
        latest = ServiceFindings(
            identity=member.verdict.identity,
            pid=about.pid,
            process_start_ns=about.started_ns,
            command=about.name,
            time_s=now_s,
            findings=tuple(findings.values()),
        )
        self._latest[member.key] = replace(latest, findings=tuple(changes.lasting.values()))
        self._rounds.figures.explanations += 1
        self._give(latest)
        named = f"{member.verdict.identity.service} (pid {about.pid})"
        for change in changed:
            if change.kind != "still":
                words = "no longer: " if change.kind == "gone" else ""
                self._log.say(f"{named}: {words}{change.finding.title}")

    def _forget(self) -> None:
        """Forget processes that ended."""
        members = self._rounds.members
        for kept in (self._explained_s, self._latest, self._changes):
            for key in [key for key in kept if key not in members]:
                del kept[key]


def service_finding(finding: Finding, since_s: float) -> ServiceFinding:
    """A finding as plain data: found first at `since_s`, Unix time."""
    return ServiceFinding(
        kind=finding.kind,
        level=finding.level.name.lower(),
        title=finding.title,
        subject=_subject(finding),
        since_s=since_s,
        lines=finding.lines,
        share=finding.share,
        error=finding.error,
        place=place(finding.place) if finding.place else "",
    )


def _subject(finding: Finding) -> str:
    """What a finding is about: the title names what takes time, the place names goroutines."""
    if finding.share is None and finding.place:
        return place(finding.place)
    return _VARIES.sub("#", finding.title)
