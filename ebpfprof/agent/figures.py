"""Totals of the agent's work, for metrics."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebpfprof.agent.service_sums import ServiceKey, ServiceSum, ServiceSums
from ebpfprof.profile.delta import totals
from ebpfprof.profile.length_counts import KnownWaits, known_waits
from ebpfprof.profilers.registry import kind_named
from ebpfprof.system.own_usage import OwnUsage, own_usage

if TYPE_CHECKING:
    from ebpfprof.continuous.history import Window
    from ebpfprof.profile.service import ServiceIdentity


@dataclass(slots=True)
class Figures:
    """Totals since the agent started, and the cost of the last round."""

    rounds: int = 0
    windows: int = 0
    explanations: int = 0
    events: Counter[str] = field(default_factory=Counter)
    """By kind, the first value of all samples."""
    amounts: Counter[str] = field(default_factory=Counter)
    """By kind, the second value of all samples, such as nanoseconds."""
    unwatched_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By reason, seconds in which processes were not recorded."""
    spent_on_targets: float = 0.0
    """The cost of the last round for processes, in processors; `spent_on_self`: for the agent."""
    spent_on_self: float = 0.0
    losses: Counter[str] = field(default_factory=Counter)
    """Lost events until the end of the last round, by reason."""
    usage: OwnUsage = field(default_factory=own_usage)
    """The resources that the agent had used by the end of the last round."""
    services: ServiceSums = field(default_factory=lambda: ServiceSums(0))
    """Waits and CPU time of single services; empty unless the settings ask for it."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, window: Window, identity: ServiceIdentity) -> None:
        """Count a window of a process of this service. Any thread may call it."""
        times = Counter[str]()
        known = self._known_waits(window)
        with self.lock:
            self.windows += 1
            for kind, profile in window.profiles.items():
                if not kind_named(kind).is_moment:
                    sums = totals(profile)
                    self.events[kind] += sums[0]
                    self.amounts[kind] += sums[1] if len(sums) > 1 else 0
                    if kind_named(kind).metric:
                        times[kind] = sums[1]
            self.services.note(identity, (window.start_s, window.end_s), times, known)

    def _known_waits(self, window: Window) -> dict[str, KnownWaits]:
        """By kind, the waits of known length; empty where metrics name no service."""
        if not self.services.limit:
            return {}
        found = {kind: known_waits(profile) for kind, profile in window.profiles.items()}
        return {kind: waits for kind, waits in found.items() if waits}

    def name_of(self, identity: ServiceIdentity) -> ServiceKey | None:
        """The name of a service in metrics; None if metrics name no service."""
        with self.lock:
            return self.services.named(identity)

    def of_services(self) -> dict[ServiceKey, ServiceSum]:
        """A copy of the sums of services, as they are now."""
        with self.lock:
            return self.services.all()
