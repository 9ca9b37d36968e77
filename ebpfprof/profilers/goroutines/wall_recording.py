"""All time of the goroutines of one process: the sums of goroutine samples at random times.

It loads no BPF program and attaches no probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ebpfprof.overhead.cost import Cost
from ebpfprof.profile.losses import Loss

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks
    from ebpfprof.profilers.goroutines.wall_profile import ReadWall
    from ebpfprof.profilers.recording import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder, WholeSums


class WallRecording:
    """Reads the sums of SharedSampler."""

    has_probes = False

    def __init__(self, opened: OpenedProcess, _slot: int) -> None:
        """The process is a Go program."""
        assert opened.go
        assert opened.sampler
        self._go, self._sampler = opened.go, opened.sampler
        self._is_started = False
        self._stacks: GoroutineStacks | None = None

    def start(self) -> int:
        """Begin to take samples. Returns when that was (CLOCK_MONOTONIC, ns).

        Raises what SharedSampler.start raises.
        """
        began_ns = self._sampler.start()
        self._is_started = True
        return began_ns

    def note_end(self) -> None:
        """Nothing to read."""

    def end(self, at_ns: int) -> None:
        """Nothing to do: SharedSampler.end_at() is called for all recordings."""

    def stop(self) -> None:
        """Take no more samples; the sums stay."""
        if self._is_started:
            self._is_started = False
            self._sampler.stop()

    def finish(self) -> None:
        """Take no more samples."""
        self.stop()

    def poll(self) -> None:
        """Nothing to do: samples are taken by a thread of their own."""

    def sums(self) -> WholeSums[ReadWall] | None:
        """The sums of the process since its first start."""
        from ebpfprof.profilers.goroutines.wall_profile import ReadWall
        from ebpfprof.profilers.report_builder import WholeSums

        looks = self._sampler
        if not looks.has_begun:
            return None
        sampler, idle = looks.sampler, looks.idle()
        return WholeSums(
            ReadWall(
                totals=looks.counted(),
                idle=idle,
                torn=sampler.states.torn,
                unknown=sampler.states.unknown,
                late_ns=looks.late_ns,
            )
        )

    def report(
        self,
        sums: WholeSums[ReadWall],
        since: WholeSums[ReadWall] | None,
        builder: ReportBuilder,
    ) -> None:
        """Add the wall profile."""
        builder.add_since(self._report_whole, sums, since)

    def cost(self) -> Cost:
        """No BPF program runs."""
        return Cost()

    def losses(self) -> Sequence[Loss]:
        """Goroutines that were not read, and labels."""
        return self._sampler.losses()

    def failures(self) -> Sequence[Exception]:
        """Why the samples ended early."""
        return [self._sampler.failure] if self._sampler.failure else []

    def close(self) -> None:
        """The process's own stack of contexts closes its memory."""

    def _report_whole(self, read: ReadWall, builder: ReportBuilder) -> None:
        from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks
        from ebpfprof.profilers.goroutines.wall_profile import report

        if self._stacks is None:
            self._stacks = GoroutineStacks(self._go)
        report(read, self._stacks, builder)
