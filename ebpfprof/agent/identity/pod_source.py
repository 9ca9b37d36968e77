"""Sources of pod metadata, which are asked rarely and with a short timeout.

A response has all pods of the node. A new one is needed if a process is newer than the response and
its pod is missing, and after a few minutes, since annotations change. After a failure, there is a
pause that grows; until then, the last response counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ebpfprof.agent.identity.kubernetes import PodNames

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import GoProcess

FRESH_S: Final = 300.0
"""How long a response counts."""
LEAST_PAUSE_S: Final = 1.0
FIRST_PAUSE_S: Final = 5.0
"""The pause after a failure; it doubles each time, up to LONGEST_PAUSE_S."""
LONGEST_PAUSE_S: Final = 300.0
_LATE_S: Final = 2.0
"""How much later than its process a pod may appear in a source, because of caches."""


class PodSourceError(Exception):
    """A source gives no pods: the end of a sentence, and the pause that it asks for (0: none)."""

    def __init__(self, sentence: str, after_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class KnownPods:
    """The pods of a source, by container id and by uid."""

    by_container: Mapping[str, PodNames] = field(default_factory=dict)
    by_uid: Mapping[str, PodNames] = field(default_factory=dict)

    def of(self, process: GoProcess) -> PodNames | None:
        """The pod of a process."""
        names = self.by_container.get(process.container or "")
        return names or self.by_uid.get(process.pod or "")


class PodSource(Protocol):
    """Knows the pods of this node."""

    @property
    def source(self) -> str:
        """Its name in metrics."""

    @property
    def name(self) -> str:
        """Its name at the beginning of a sentence."""

    def may_know(self, process: GoProcess) -> bool:
        """Whether the source could know the pod of this process."""

    def ask(self) -> KnownPods:
        """All pods of this node. Blocks for a few seconds at most. Raises PodSourceError."""

    def close(self) -> None:
        """Close its connections."""


@dataclass(slots=True)
class SourceCounts:
    """The numbers of successful and failed requests, and of pods in the last response."""

    answered: int = 0
    failed: int = 0
    pods: int = 0


class AskedSource:
    """A source with its last response. For one thread; any thread may read `counts`."""

    def __init__(
        self,
        source: PodSource,
        notify: Callable[[str], None],
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """`clock` is that of process start times: CLOCK_BOOTTIME, in seconds."""
        self._asked, self._notify, self._clock = source, notify, clock
        self.counts = SourceCounts()
        self._known = KnownPods()
        self._answered_s: float | None = None
        self._not_before_s = 0.0
        self._failures = 0
        self.problem = ""
        """Why the last request failed, as the end of a sentence; "" if it succeeded."""

    @property
    def source(self) -> str:
        """The source's name in metrics."""
        return self._asked.source

    @property
    def name(self) -> str:
        """The source's name at the beginning of a sentence."""
        return self._asked.name

    def of(self, process: GoProcess) -> PodNames | None:
        """The pod of a process; asks the source if necessary."""
        if not self._asked.may_know(process):
            return None
        names = self._known.of(process)
        if self._is_due(process.started_ns / 1e9, is_known=names is not None):
            self.ask()
            names = self._known.of(process)
        return names

    def ask(self) -> None:
        """Ask the source now, and report a new problem."""
        try:
            self._known = self._asked.ask()
        except PodSourceError as error:
            self._note_failure(error)
            return
        self._answered_s = self._clock()
        self._not_before_s = self._answered_s + LEAST_PAUSE_S
        self._failures = 0
        self.counts.answered += 1
        self.counts.pods = len(self._known.by_uid)
        if self.problem:
            self._notify(f"{self.name} responds again.")
        self.problem = ""

    def close(self) -> None:
        """Close the source's connections."""
        self._asked.close()

    def _is_due(self, started_s: float, *, is_known: bool) -> bool:
        now_s = self._clock()
        if now_s < self._not_before_s:
            return False
        if self._answered_s is None or now_s >= self._answered_s + FRESH_S:
            return True
        return not is_known and self._answered_s < started_s + _LATE_S

    def _note_failure(self, error: PodSourceError) -> None:
        pause_s = min(FIRST_PAUSE_S * 2**self._failures, LONGEST_PAUSE_S)
        self._failures = min(self._failures + 1, 16)
        self._not_before_s = self._clock() + max(pause_s, min(error.after_s, LONGEST_PAUSE_S))
        self.counts.failed += 1
        if str(error) != self.problem:
            self.problem = str(error)
            self._notify(
                f"{self.name} gives no pods: {error}. Using earlier responses and the node's own "
                "files until it responds."
            )
