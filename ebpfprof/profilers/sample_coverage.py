"""What the comments of a profile say about an estimate from goroutine samples."""

from __future__ import annotations

from dataclasses import dataclass

from ebpfprof.console.text import duration

_LATE_NS = 200_000  # later than that, samples come when it suits the target


@dataclass(frozen=True, slots=True)
class SampleCoverage:
    """How often goroutines were sampled.

    `torn` counts stacks that were read a moment too late, `unknown`
    goroutines without a stack. `late_ns` is how late samples came on average.
    """

    samples: int
    length_ns: int
    torn: int
    unknown: int
    late_ns: float

    def __sub__(self, earlier: SampleCoverage) -> SampleCoverage:
        return SampleCoverage(
            self.samples - earlier.samples,
            self.length_ns - earlier.length_ns,
            self.torn - earlier.torn,
            self.unknown - earlier.unknown,
            self.late_ns,
        )

    def __add__(self, later: SampleCoverage) -> SampleCoverage:
        return SampleCoverage(
            self.samples + later.samples,
            self.length_ns + later.length_ns,
            self.torn + later.torn,
            self.unknown + later.unknown,
            later.late_ns,
        )

    def __str__(self) -> str:
        apart_ns = self.length_ns / max(self.samples - 1, 1)
        return (
            f"{self.samples} goroutine samples at random times, "
            f"{duration(apart_ns)} apart on average"
        )

    @property
    def windows(self) -> int:
        """The number of samples."""
        return self.samples

    @property
    def share(self) -> float:
        """1: samples leave out no time."""
        return 1.0

    @property
    def is_scaled(self) -> bool:
        """A sample stands for the time around it."""
        return True

    def sampling(self, whole: str) -> str:
        """Nothing to add."""
        return whole

    @property
    def knows_errors(self) -> bool:
        """Whether there were enough samples."""
        return self.samples > 1

    def error(self, kind: str) -> str:
        """That errors are unknown; nothing to report for all of the time.

        Each sample finds all goroutines.
        """
        if self.samples < 2:
            return "standard error not known, from a single sample"
        return ""

    def missing(self, kind: str) -> list[str]:
        """In words, what may be wrong with short waits."""
        lines = []
        if self.unknown:
            lines.append(f"goroutines without a stack: {self.unknown}: they ran again too soon")
        if self.late_ns > _LATE_NS:
            lines.append(
                f"samples came {duration(self.late_ns)} late on average, because all processors "
                "were busy: shorter waits may seem longer. With CAP_SYS_NICE they come on time"
            )
        return lines
