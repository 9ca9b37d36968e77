"""What a recording costs: the target, estimated from counts and measurements, and ourselves."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ebpfprof.console.text import duration, percent, quantity

_LEAST_CPU_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Runs:
    """How often our BPF programs ran for a target, and how long (ns) all runs took together.

    The programs count each run and time some: `timed` runs, without the longest of each processor
    and those that something interrupted. The estimate assumes that the others took as long
    (bpf/common/cost.h).
    """

    count: int = 0
    ns: float = 0.0
    timed: int = 0

    def __sub__(self, earlier: Runs) -> Runs:
        return Runs(
            self.count - earlier.count, max(0.0, self.ns - earlier.ns), self.timed - earlier.timed
        )

    def __add__(self, later: Runs) -> Runs:
        return Runs(self.count + later.count, self.ns + later.ns, self.timed + later.timed)

    @property
    def each_ns(self) -> float:
        """How long one run took on average, estimated, in ns."""
        return self.ns / self.count if self.count else 0.0


def runs(count: int, timed: int, timed_ns: int) -> Runs:
    """Runs from the sums of the kernel's `costs` map."""
    return Runs(count, timed_ns * count / timed if timed else 0.0, timed)


@dataclass(frozen=True, slots=True)
class Cost:
    """What recordings of a process ran for it: at probes (`hits`) and for CPU samples.

    Each hit costs `hit_ns` besides the run of our program; None without probes, or if unknown.
    """

    hits: Runs = Runs()
    samples: Runs = Runs()
    hit_ns: float | None = None

    def __sub__(self, earlier: Cost) -> Cost:
        return Cost(self.hits - earlier.hits, self.samples - earlier.samples, self.hit_ns)

    def __add__(self, other: Cost) -> Cost:
        hit_ns = other.hit_ns if self.hit_ns is None else self.hit_ns
        return Cost(self.hits + other.hits, self.samples + other.samples, hit_ns)

    @property
    def ns(self) -> float:
        """The CPU time that the process lost, estimated, in ns."""
        return self.hits.count * (self.hit_ns or 0.0) + self.hits.ns + self.samples.ns


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a recording cost a target in all, estimated.

    `hits` are the runs at probes. Each hit costs `hit_ns` besides the run of our program; None if
    we could not measure that. `samples` are the runs for the CPU profile, without their
    interrupts. `cpu_ns` is the CPU time that the target used meanwhile, including this cost;
    `kernel_ns` the part of it in the kernel, by the kernel's ticks, None if that is not known.
    """

    hits: Runs
    samples: Runs
    hit_ns: float | None
    cpu_ns: int
    kernel_ns: int | None = None

    def __sub__(self, earlier: Overhead) -> Overhead:
        hits, samples = self.hits - earlier.hits, self.samples - earlier.samples
        kernel_ns = None
        if self.kernel_ns is not None and earlier.kernel_ns is not None:
            kernel_ns = self.kernel_ns - earlier.kernel_ns
        return Overhead(hits, samples, self.hit_ns, self.cpu_ns - earlier.cpu_ns, kernel_ns)

    def __add__(self, later: Overhead) -> Overhead:
        hits, samples = self.hits + later.hits, self.samples + later.samples
        kernel_ns = None
        if self.kernel_ns is not None and later.kernel_ns is not None:
            kernel_ns = self.kernel_ns + later.kernel_ns
        return Overhead(hits, samples, later.hit_ns, self.cpu_ns + later.cpu_ns, kernel_ns)

    @property
    def ns(self) -> float:
        """How long the target's threads were delayed, in ns.

        In a program that does little but trap, with warm caches, a trap takes less than was
        measured. There the time in the kernel is a bound, since traps and our programs run there.
        Ticks are exact enough if it is long.
        """
        return float(self.kernel_ns or 0) if self._is_bounded else self._estimated_ns

    @property
    def _estimated_ns(self) -> float:
        return self.hits.count * (self.hit_ns or 0.0) + self.hits.ns + self.samples.ns

    @property
    def _is_bounded(self) -> bool:
        is_known = self.kernel_ns is not None and self.cpu_ns >= _LEAST_CPU_NS
        is_large = self._estimated_ns > self.cpu_ns / 2
        return is_known and is_large and self._estimated_ns > (self.kernel_ns or 0)

    @property
    def share(self) -> float:
        """The part of its CPU time that the target lost, 0 to 1."""
        return min(1.0, self.ns / self.cpu_ns) if self.cpu_ns else 0.0

    @property
    def summary(self) -> str:
        """In a few words: "35 ms, 1 % of the process's CPU time"."""
        share = f", {percent(self.share)} of the process's CPU time" if self.cpu_ns else ""
        return f"{duration(self.ns, digits=2)}{share}"

    def __str__(self) -> str:
        parts = []
        if self.hits.count:
            each_ns = (self.hit_ns or 0.0) + self.hits.each_ns
            parts.append(_times(self.hits, "probe hit", each_ns))
            if self.hit_ns is None:
                parts.append("without the traps, whose cost is not known")
        if self.samples.count:
            parts.append(_times(self.samples, "CPU sample", self.samples.each_ns))
        if self._is_bounded:
            parts.append("limited to the CPU time in the kernel")
        return f"{self.summary} ({', '.join(parts)})" if parts else self.summary


def _times(counted: Runs, noun: str, each_ns: float) -> str:
    """The number of runs and what one costs: "10,030 probe hits of 2.9 us"."""
    nouns = noun if counted.count == 1 else f"{noun}s"
    of_ns = f" of {duration(each_ns, digits=2)}" if each_ns else ""
    untimed = "" if counted.timed else ", our programs not timed"
    return f"{counted.count:,} {nouns}{of_ns}{untimed}"


def own_cost() -> str:
    """What this process and its ended children used until now, in words; the memory is the most."""
    peak = quantity(_peak_bytes(), "bytes", digits=2)
    return f"{duration(own_cpu_s() * 1e9, digits=2)} of CPU time and {peak} of memory"


def own_cpu_s() -> float:
    """The CPU time that this process and its ended children used until now, in seconds."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_bytes() -> int:
    """The most memory that this program ever had.

    Not ru_maxrss: it starts with the memory of the process that started us (fs/exec.c, exec_mmap).
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
