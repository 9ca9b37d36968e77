"""A profiler that records nothing, and notes what it is asked to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ebpfprof.overhead.cost import Cost, Runs
from ebpfprof.profile.kind import Loader
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.recording import OpenedProcess, Rights
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import SwitchValue
from tests.unit.made_up_kinds import NAPS

KIND = replace(
    NAPS,
    loader=Loader(__name__, needs_go=False, needs_bpf=False),
    options=(Setting("dreams", SwitchValue(), False, "Record dreams, too.", flags="--dreams"),),
)
DREAMS = replace(KIND, name="dreams", title="dream", enabled_by="dreams", options=())
"""A kind that an option of the other one adds."""
OPENED: list[MadeUpProfiler] = []
"""All that were opened, the last one last."""


class MadeUpRecording:
    """The recording of one process; `calls` are those of it and of its profiler."""

    def __init__(self, calls: list[str], *, has_probes: bool = True, name: str = "") -> None:
        self.calls, self.has_probes, self.name = calls, has_probes, name
        self.error: Exception | None = None
        self.lost = 0

    def start(self) -> int:
        self.calls.append(f"start{self.name}")
        if self.error:
            raise self.error
        return time.monotonic_ns()

    def note_end(self) -> None:
        self.calls.append(f"note end{self.name}")

    def end(self, at_ns: int) -> None:
        assert at_ns > time.monotonic_ns()
        self.calls.append(f"end{self.name}")

    def stop(self) -> None:
        self.calls.append(f"stop{self.name}")

    def sums(self) -> int | None:
        return len(self.calls) if f"start{self.name}" in self.calls else None

    def report(self, sums: object, since: object, builder: object) -> None:
        self.calls.append(f"report {sums} since {since}")

    def cost(self) -> Cost:
        return Cost(Runs(3, 30.0, 3), hit_ns=10.0)

    def losses(self) -> Sequence[Loss]:
        return [Loss("late", "late naps", self.lost)]

    def failures(self) -> Sequence[Exception]:
        return [self.error] if self.error else []

    def close(self) -> None:
        self.calls.append(f"close{self.name}")


class MadeUpProfiler:
    """Records any number of processes; `slots` are those that it got, in order."""

    tick_s = 0.01

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.slots: list[int] = []
        self.recordings: list[MadeUpRecording] = []

    def load(self, goroutines: int) -> None:
        self.calls.append(f"load for {goroutines}")

    def record(self, opened: OpenedProcess, slot: int) -> MadeUpRecording:
        assert opened.go is None
        self.slots.append(slot)
        self.recordings.append(MadeUpRecording(self.calls))
        return self.recordings[-1]

    def poll(self) -> None:
        self.calls.append("poll")

    def detach(self) -> None:
        self.calls.append("detach")

    def losses(self) -> Sequence[Loss]:
        return [Loss("full", "naps in a full table", 5, ("rests",))]

    def failures(self) -> Sequence[Exception]:
        return []

    def close(self) -> None:
        self.calls.append("close all")


def open_profiler(_targets: int, _options: Options) -> MadeUpProfiler:
    OPENED.append(MadeUpProfiler())
    return OPENED[-1]


def rights(_options: Options) -> Rights:
    return Rights()
