"""Keeps apart what is recorded of a process by time, for the heatmap of a file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import TargetGone
from ebpfprof.profile.model import Profile
from ebpfprof.profile.wait_slices import MOST_SLICES, WaitSlices
from ebpfprof.profilers.registry import kinds
from ebpfprof.recording.reports import ProcessSums, reported

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.recording.target import LiveTarget

_PARTS: Final = 60
_LEAST_S: Final = 0.25
_UNTIL_END_S: Final = 1.0  # as long as the length of the recording is not known
_PAUSES: Final = 50
"""The length of a pause, in multiples of the reading before it: that is 2 % of a processor."""


class SliceReader:
    """Reads the sums of a process again and again while it is recorded.

    It reads kinds that have the lengths of events (ProfileKind.has_lengths). After an error, the
    rest of the recording is one slice; `failures` has the error. If one occurs at the end, there
    are no slices.
    """

    def __init__(
        self,
        live: LiveSession,
        target: LiveTarget,
        since: ProcessSums,
        options: Options,
        duration_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`since` are the sums at the start; `duration_s` may be infinite."""
        self._now_s = now_s
        self._live, self._target = live, target
        self._options = options
        recorded = {kind.name for kind in kinds() if kind.has_lengths}
        self._slices = {name: WaitSlices() for name in target.kinds if name in recorded}
        self._last = since
        self._length_s = max(duration_s / _PARTS, _LEAST_S)
        if math.isinf(duration_s):
            self._length_s = _UNTIL_END_S
        self._begun_s = self._now_s()
        self._due_s = self._begun_s + self._length_s
        self.failures: list[Exception] = []
        self._begun_unix_s = target.started_unix_ns / 1e9

    def poll(self) -> None:
        """Read the sums if that is due."""
        began_s = self._now_s()
        if not self._slices or began_s < self._due_s:
            return
        try:
            self._add(self._live.sums(self._target, self._slices))
        except TargetGone:  # the sums at the end, for finish(), have all that was recorded
            self._due_s = math.inf
            return
        except Exception as error:  # whichever: the recording must go on
            self.failures.append(error)
            self._due_s = math.inf
            return
        now_s = self._now_s()
        length_s = max(self._length_s, (now_s - self._begun_s) / MOST_SLICES)
        self._due_s = max(began_s + length_s, now_s + _PAUSES * (now_s - began_s))

    def finish(self, sums: ProcessSums, profiles: Sequence[Profile]) -> list[Profile]:
        """These profiles of the whole recording, with their slices; `sums` are those at its end."""
        if not self._slices:
            return [*profiles]
        facts = replace(sums.facts, kinds=tuple(self._slices))
        wanted = self._target.recordings.of_kinds(self._slices)
        parts = {one: part for one, part in sums.parts.items() if one in wanted}
        try:
            self._add(ProcessSums(sums.target, facts, parts))
        except Exception as error:  # whichever: the profiles are complete without their slices
            self.failures.append(error)
            return [*profiles]
        return [replace(profile, slices=self._slices.get(profile.kind)) for profile in profiles]

    def _add(self, sums: ProcessSums) -> None:
        facts = sums.facts
        end_s = self._begun_unix_s + (facts.ended_ns - facts.started_ns) / 1e9
        report = reported(sums, self._last, self._options)
        for profile in report.profiles:
            if profile.kind in self._slices:
                slices = self._slices[profile.kind]
                start_s = slices.times[-1][1] if slices.times else self._begun_unix_s
                slices.add(profile, start_s, end_s)
        self._last = sums
