"""Others who know the pods of this node: asked seldom, and never for longer than a moment.

An answer has all pods of the node. Another one is wanted when a process is newer than the answer
and its pod is not in it, and after some minutes, since annotations change. One that fails is asked
again after a pause, which grows; until then, what it said last counts.
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
"""For how long an answer counts."""
LEAST_PAUSE_S: Final = 1.0
FIRST_PAUSE_S: Final = 5.0
"""How long a source that failed is left alone; twice as long each time, up to LONGEST_PAUSE_S."""
LONGEST_PAUSE_S: Final = 300.0
_LATE_S: Final = 2.0
"""By how much a source may know of a pod later than we see its process: it has caches, too."""


class PodSourceError(Exception):
    """A source gives no pods: the end of a sentence, and how long it wants us to wait (0: any)."""

    def __init__(self, sentence: str, after_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class KnownPods:
    """What a source says: pods by the ids of their containers, and by their uids."""

    by_container: Mapping[str, PodNames] = field(default_factory=dict)
    by_uid: Mapping[str, PodNames] = field(default_factory=dict)

    def of(self, process: GoProcess) -> PodNames | None:
        """The pod of a process."""
        found = self.by_container.get(process.container or "")
        return found or self.by_uid.get(process.pod or "")


class PodSource(Protocol):
    """Knows the pods of this node."""

    @property
    def source(self) -> str:
        """Its name in metrics."""

    @property
    def name(self) -> str:
        """Its name at the beginning of a sentence."""

    def may_know(self, process: GoProcess) -> bool:
        """Whether it is worth asking for the pod of this process."""

    def ask(self) -> KnownPods:
        """All pods of this node. Blocks for some seconds at most. Raises PodSourceError."""

    def close(self) -> None:
        """Close its connections."""


@dataclass(slots=True)
class SourceCounts:
    """What became of the requests so far, and how many pods the last answer had."""

    answered: int = 0
    failed: int = 0
    pods: int = 0


class AskedSource:
    """A source with its last answer. For one thread; any may read `counts`."""

    def __init__(
        self,
        source: PodSource,
        tell: Callable[[str], None],
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """`clock` is one that processes are started by: CLOCK_BOOTTIME, in seconds."""
        self._asked, self._tell, self._clock = source, tell, clock
        self.counts = SourceCounts()
        self._known = KnownPods()
        self._answered_s: float | None = None
        self._not_before_s = 0.0
        self._failures = 0
        self.problem = ""
        """Why the last request failed, as the end of a sentence; "" if it was answered."""

    @property
    def source(self) -> str:
        """The source's name in metrics."""
        return self._asked.source

    @property
    def name(self) -> str:
        """The source's name at the beginning of a sentence."""
        return self._asked.name

    def of(self, process: GoProcess) -> PodNames | None:
        """What the source knows of a process's pod; asks it if need be."""
        if not self._asked.may_know(process):
            return None
        found = self._known.of(process)
        if self._is_due(process.started_ns / 1e9, is_known=found is not None):
            self.ask()
            found = self._known.of(process)
        return found

    def ask(self) -> None:
        """Ask the source now, and tell if that is another problem than before."""
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
            self._tell(f"{self.name} answers again.")
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
            self._tell(
                f"{self.name} tells no pods: {error}. What it said before and the node's own files "
                "count until it answers."
            )
