"""What recordings cost: each process, and the agent itself, round by round.

What the agent's own work costs is known for all processes together. Each recorded process is taken
to cause the same part of it. A process that was never recorded is taken to cost what the others do
on average, or FIRST before there are any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from ebpfprof.agent.scheduler import Key

FIRST: Final = 0.002
"""What a process is taken to cost before anything was measured, in processors."""
OPENING_S: Final = 0.05
"""The CPU time that it takes to open a process and to close it again, in seconds."""
_NEW_WEIGHT: Final = 0.5
_LEAST: Final = 1e-5


@dataclass(slots=True)
class Costs:
    """Learns from rounds; all numbers are in processors."""

    own_each: float = FIRST
    """The agent's own CPU time for each recorded process."""
    _of_targets: dict[Key, float] = field(default_factory=dict)

    def note(self, of_targets: Mapping[Key, float], own: float, opening: float = 0.0) -> float:
        """Note what a round cost the processes that it recorded, and the agent; return the sum.

        `opening` is the part of the agent's cost that it took to open processes.
        """
        for key, cost in of_targets.items():
            before = self._of_targets.get(key, cost)
            self._of_targets[key] = before + _NEW_WEIGHT * (cost - before)
        if of_targets:
            each = max(0.0, own - opening) / len(of_targets)
            self.own_each += _NEW_WEIGHT * (each - self.own_each)
        return own + sum(of_targets.values())

    def of(self, key: Key, opened_in_s: float = math.inf) -> float:
        """What it is likely to cost to record a process.

        With `opened_in_s`, it has to be opened first, in a round of so many seconds.
        """
        known = self._of_targets
        target = known[key] if key in known else (fmean(known.values()) if known else 0.0)
        return max(_LEAST, target + self.own_each) + OPENING_S / opened_in_s

    def forget(self, kept: Mapping[Key, object]) -> None:
        """Forget all processes but these."""
        self._of_targets = {key: each for key, each in self._of_targets.items() if key in kept}
