"""Keeps the last words of processes that come near their memory limit, before they are killed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ebpfprof.console.text import listed, quantity
from ebpfprof.discovery.processes import started_ns
from ebpfprof.errors import EbpfprofError, NoSuchProcess, TargetGone
from ebpfprof.profile.service import ServiceFinding, ServiceFindings, ServiceWindow
from ebpfprof.profilers.registry import kind_named

if TYPE_CHECKING:
    from ebpfprof.agent.log import Log
    from ebpfprof.agent.roster import Member
    from ebpfprof.agent.rounds import Rounds
    from ebpfprof.agent.scheduler import Key
    from ebpfprof.agent.sinks.sink import Item
    from ebpfprof.profile.model import Profile

CHECK_S: Final = 1.0
"""A program that allocates a gigabyte a second fills the rest of its limit in less."""
_APART_S: Final = 300.0
"""The least time between the last words of a process."""


class Near(Protocol):
    """What is needed of ebpfprof.observing.memory_limits.NearLimit."""

    @property
    def needed_bytes(self) -> int:
        """The memory that the container can't do without."""

    @property
    def limit_bytes(self) -> int:
        """Its limit."""


class Kept(Protocol):
    """What is needed of ebpfprof.server.last_words.LastWords."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Profiles by kind."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Sentences about memory."""


FindNear = Callable[[Collection[int]], Mapping[int, Near]]
"""Of processes by pid, those that are near their limit."""
Keep = Callable[[int], Kept]
"""Reads the last words of the process with a pid. Raises any of ebpfprof.errors."""


class MemoryGuard:
    """Checks the processes that `rounds` records, and passes last words to `give`."""

    def __init__(
        self, rounds: Rounds, near: FindNear, keep: Keep, log: Log, give: Callable[[Item], None]
    ) -> None:
        self._rounds, self._near, self._keep = rounds, near, keep
        self._log, self._give = log, give
        self._stopping = threading.Event()
        self._kept_s: dict[Key, float] = {}

    async def run(self) -> None:
        """Check processes until stop()."""
        while not self._stopping.is_set():
            try:
                await self._check()
            except Exception as error:  # the agent must not end with it
                self._log.say(f"Memory limits can't be checked: {type(error).__name__}: {error}")
            await asyncio.sleep(CHECK_S)

    def stop(self) -> None:
        """Check no more."""
        self._stopping.set()

    async def _check(self) -> None:
        now_s, known = time.monotonic(), self._rounds.members
        self._kept_s = {key: kept_s for key, kept_s in self._kept_s.items() if key in known}
        members = {
            member.about.pid: member
            for member in self._rounds.recorded_for(0.0)
            if now_s - self._kept_s.get(member.key, -_APART_S) >= _APART_S
        }
        near = await asyncio.to_thread(self._near, members)
        for pid, one in near.items():
            member = members[pid]
            self._kept_s[member.key] = now_s
            await self._keep_of(member, one)

    async def _keep_of(self, member: Member, near: Near) -> None:
        about, now_s = member.about, time.time()
        try:
            kept = await asyncio.to_thread(self._keep, about.pid)
        except (NoSuchProcess, TargetGone):
            return
        except EbpfprofError as error:
            self._log.say(f"Process {about.pid} is near its memory limit: {error}")
            return
        if started_ns(about.pid) not in (0, about.started_ns):
            return
        identity = member.verdict.identity
        self._give(
            ServiceWindow(
                identity=identity,
                pid=about.pid,
                process_start_ns=about.started_ns,
                command=about.name,
                go_version=about.go_version or "",
                start_s=now_s,
                end_s=now_s,
                profiles=kept.profiles,
            )
        )
        needed, limit = (quantity(size, "bytes") for size in (near.needed_bytes, near.limit_bytes))
        titles = listed([kind_named(name).title for name in kept.profiles])
        noun = "profile was" if len(kept.profiles) == 1 else "profiles were"
        finding = ServiceFinding(
            kind="memory_limit",
            level="risk",
            title=f"Last words: the container needs {needed} of {limit}; {titles} {noun} kept.",
            subject="last words",
            since_s=now_s,
            lines=kept.lines,
            share=None,
        )
        self._give(
            ServiceFindings(
                identity, about.pid, about.started_ns, about.name, now_s, findings=(finding,)
            )
        )
        self._log.say(f"{identity.service} (pid {about.pid}): {finding.title}")
