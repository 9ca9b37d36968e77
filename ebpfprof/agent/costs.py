"""The cost of recordings: of the processes, and of the agent itself, round by round.

The agent's own cost is known as a total, and split equally between the recorded processes. A
process that was never recorded is assumed to cost the mean of the others, or FIRST before there are
any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from ebpfprof.agent.scheduler import Key

FIRST: Final = 0.002
"""The assumed cost of a process before anything was measured, in processors."""
OPENING_S: Final = 0.05
"""The CPU time to open and close a process, in seconds."""
FIRST_EXPLAINING_S: Final = 0.7
"""The assumed CPU time to explain a process before anything was measured, in seconds."""
_NEW_WEIGHT: Final = 0.5
_LEAST: Final = 1e-5


@dataclass(slots=True)
class Costs:
    """Learns from rounds; all numbers are in processors."""

    own_each: float = FIRST
    """The agent's own CPU time per recorded process."""
    explaining_s: float = FIRST_EXPLAINING_S
    """The CPU time to explain a process, in seconds, by the last ones."""
    _of_targets: dict[Key, float] = field(default_factory=dict)

    def note(self, of_targets: Mapping[Key, float], own: float, apart: float = 0.0) -> float:
        """Add the costs of a round for the recorded processes and for the agent; return the sum.

        `apart` is the part of the agent's cost that was spent to open and explain processes.
        """
        for key, cost in of_targets.items():
            before = self._of_targets.get(key, cost)
            self._of_targets[key] = before + _NEW_WEIGHT * (cost - before)
        if of_targets:
            per_process = max(0.0, own - apart) / len(of_targets)
            self.own_each += _NEW_WEIGHT * (per_process - self.own_each)
        return own + sum(of_targets.values())

    def of(self, key: Key, opened_in_s: float = math.inf) -> float:
        """The expected cost of recording a process.

        With `opened_in_s`, it is opened first, in a round of `opened_in_s` seconds.
        """
        known = self._of_targets
        target = known[key] if key in known else (fmean(known.values()) if known else 0.0)
        return max(_LEAST, target + self.own_each) + OPENING_S / opened_in_s

    def note_explanation(self, cpu_s: float) -> None:
        """Add the CPU time that an explanation took, in seconds."""
        self.explaining_s += _NEW_WEIGHT * (cpu_s - self.explaining_s)

    def forget(self, kept: Mapping[Key, object]) -> None:
        """Forget all other processes."""
        self._of_targets = {key: cost for key, cost in self._of_targets.items() if key in kept}
