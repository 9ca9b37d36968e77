"""A process that is served: what is known and kept of it, and what is needed of a live session."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ebpfprof.console.text import printable
from ebpfprof.continuous.history import Windows

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import GoProcess
    from ebpfprof.kernel.losses import Loss
    from ebpfprof.overhead.cost import Overhead
    from ebpfprof.process.process import TargetEnd
    from ebpfprof.profile.model import Profile
    from ebpfprof.profilers.report_builder import Report


class LiveTarget(Protocol):
    """What is needed of ebpfprof.recording.live.LiveTarget."""

    @property
    def pid(self) -> int: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def go_version(self) -> str | None: ...  # noqa: D102
    @property
    def kinds(self) -> tuple[Any, ...]: ...  # noqa: D102
    @property
    def ending(self) -> TargetEnd | None: ...  # noqa: D102
    @property
    def is_recording(self) -> bool: ...  # noqa: D102


class Live(Protocol):
    """What is needed of ebpfprof.recording.live.LiveSession."""

    def add(self, pid: int) -> Any: ...  # noqa: ANN401, D102
    def start(self, target: Any) -> None: ...  # noqa: ANN401, D102
    def stop(self, target: Any) -> None: ...  # noqa: ANN401, D102
    def remove(self, target: Any) -> None: ...  # noqa: ANN401, D102
    def snapshot(self, target: Any, kinds: Collection[str] | None = None) -> Report: ...  # noqa: ANN401, D102
    def begin(self, target: Any) -> Any: ...  # noqa: ANN401, D102
    def read(self, target: Any, samples: Any, *, restart: bool = False) -> Report: ...  # noqa: ANN401, D102
    def overhead(self, target: Any) -> Overhead: ...  # noqa: ANN401, D102
    def losses(self) -> Iterable[Loss]: ...  # noqa: D102


@dataclass(eq=False)
class Served:
    """One process that is served; `live` once it was looked into, until it went."""

    pid: int
    kinds: tuple[str, ...]
    about: GoProcess | None = None
    is_found: bool = False
    """Whether it was found, rather than named by the user."""
    live: LiveTarget | None = None
    samples: Any = None
    """CPU samples since the last window, once it was recorded, if it has a CPU profile."""
    windows: Windows = field(default_factory=Windows)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    since_s: float = 0.0
    """When the present recording began, CLOCK_MONOTONIC."""
    leased_until_s: float = 0.0
    is_leased: bool = False
    """Whether there is a lease; `holds_lease` once it has begun."""
    holds_lease: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    ending: str | None = None
    """Why it went, in words."""
    gone_s: float = 0.0
    problem: str | None = None
    """Why the last lease could not begin, until somebody was told."""
    said: str = ""
    """The same as it was said last on stderr."""
    last_sent: dict[str, Profile] = field(default_factory=dict)
    """By kind, what the last request for a difference to the one before was answered with."""

    opened_name: str = ""

    @property
    def name(self) -> str:
        """What its command is called, made harmless."""
        return self.opened_name or printable(self.about.name if self.about else "")

    @property
    def is_recording(self) -> bool:
        """Whether the probes are in it."""
        return self.users > 0 and self.ending is None

    @property
    def is_over(self) -> bool:
        """Whether it went, and nobody waits any more for what was recorded of it."""
        return self.ending is not None and self.users == 0 and self.live is None
