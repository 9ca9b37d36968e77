"""A process that is recorded continuously, and what this room needs of a live session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from ebpfprof.console.text import printable
from ebpfprof.continuous.history import History
from ebpfprof.errors import TargetGone

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import GoProcess
    from ebpfprof.overhead.cost import Overhead
    from ebpfprof.process.process import TargetEnd
    from ebpfprof.profile.losses import Loss
    from ebpfprof.profile.model import Profile
    from ebpfprof.profilers.report_builder import Report


class LiveTarget(Protocol):
    """What is needed of ebpfprof.recording.live.LiveTarget."""

    @property
    def pid(self) -> int: ...  # noqa: D102 - as LiveTarget
    @property
    def name(self) -> str: ...  # noqa: D102 - as LiveTarget
    @property
    def go_version(self) -> str | None: ...  # noqa: D102 - as LiveTarget
    @property
    def kinds(self) -> tuple[Any, ...]: ...  # noqa: D102 - as LiveTarget
    @property
    def ending(self) -> TargetEnd | None: ...  # noqa: D102 - as LiveTarget
    @property
    def is_recording(self) -> bool: ...  # noqa: D102 - as LiveTarget
    @property
    def handlers(self) -> Handlers | None:
        """What labels its profiles by handler; None without --by-handler."""


class Handlers(Protocol):
    """What is needed of ebpfprof.recording.process_handlers.ProcessHandlers."""

    def labelled(self, profiles: Sequence[Profile]) -> list[Profile]:
        """The profiles with the labels of handlers."""


class Live(Protocol):
    """What is needed of ebpfprof.recording.live.LiveSession."""

    def add(self, pid: int) -> Any: ...  # noqa: ANN401, D102 - as LiveSession
    def start(self, target: Any) -> Any: ...  # noqa: ANN401, D102 - as LiveSession
    def stop(self, target: Any) -> None: ...  # noqa: ANN401, D102 - as LiveSession
    def remove(self, target: Any) -> None: ...  # noqa: ANN401, D102 - as LiveSession
    def sums(self, target: Any, kinds: Collection[str] | None = None) -> Any: ...  # noqa: ANN401, D102 - as LiveSession
    def report(self, sums: Any, since: Any = None) -> Report: ...  # noqa: ANN401, D102 - as LiveSession
    def overhead(self, target: Any) -> Overhead: ...  # noqa: ANN401, D102 - as LiveSession
    def losses(self, target: Any = None) -> Sequence[Loss]: ...  # noqa: ANN401, D102 - as LiveSession


class Phase(Enum):
    """What a recording that begins waits for."""

    NONE = "no recording begins"
    READING = "the symbols of its program are read"
    ATTACHING = "its probes and samplers are attached"


@dataclass(eq=False)
class RecordedProcess:
    """A process that a Manager records while something needs it recorded.

    `kinds` are the names of the profiles that it can have. `target` is that of the live session,
    from when the process was opened until it was closed. The fields are for reading; only the
    other modules of this package set them.
    """

    pid: int
    kinds: tuple[str, ...]
    about: GoProcess | None = None
    """What the survey of processes knows of it."""
    is_found: bool = False
    """Whether it was found by a survey, rather than named by the user."""
    target: LiveTarget | None = None
    opened_name: str = ""
    history: History = field(default_factory=History)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its probes are attached or detached, and while a window ends."""
    window_began: Any = None
    """The live session's sums at the begin of the window; None until it was started."""
    phase: Phase = Phase.NONE
    users: int = 0
    """How many want it recorded now: leases and blocks of Leases.recording."""
    since_s: float = 0.0
    """When the present recording began, CLOCK_MONOTONIC."""
    leased_until_s: float = 0.0
    """CLOCK_MONOTONIC."""
    is_leased: bool = False
    """Whether there is a lease; `holds_lease` once it counts as a user."""
    holds_lease: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ending: str | None = None
    """How the process ended, in words: "process 7 ended". None while it runs."""
    ended_s: float = 0.0
    """When that was noticed, Unix time."""
    problem: str | None = None
    """Why the last lease could not begin, until take_problem."""
    reported_problem: str = ""
    """The problem that was last written to stderr."""
    handlers: Handlers | None = None
    """Its handlers, if profiles are to be by handler; they stay when it is closed."""
    last_read: dict[str, Profile] = field(default_factory=dict)
    """By kind, the sums at the last call of Readings.since_last."""

    @property
    def name(self) -> str:
        """The name of its command, printable."""
        return self.opened_name or printable(self.about.name if self.about else "")

    def labelled(self, profile: Profile) -> Profile:
        """The profile with the labels of its handlers, if it is to have them.

        Names of handlers may change, so profiles are added up and subtracted without them.
        """
        return self.handlers.labelled([profile])[0] if self.handlers else profile

    @property
    def is_recording(self) -> bool:
        """Whether its probes and samplers are attached."""
        return self.users > 0 and self.ending is None

    @property
    def is_closed(self) -> bool:
        """Whether it ended, and the live session holds nothing of it any more."""
        return self.ending is not None and self.users == 0 and self.target is None

    def end(self, ending: str) -> None:
        """The process ended, as `ending` says; the first ending counts."""
        if self.ending is None:
            self.ending, self.ended_s = ending, time.time()
            self.ended.set()

    def take_problem(self) -> str | None:
        """Why the last lease could not begin, a sentence; None if it did, or this was asked."""
        problem, self.problem = self.problem, None
        return problem

    def require_target(self) -> LiveTarget:
        """Its target of the live session. Raises TargetGone if it was not opened, or is closed."""
        if self.target is None:
            raise TargetGone(f"Process {self.pid} was not recorded yet.")
        return self.target
