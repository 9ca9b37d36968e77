"""How to record: what the command line asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebpfprof.collectors.waitrows import Recipe
from ebpfprof.labels import key_hashes
from ebpfprof.profile import Kind

if TYPE_CHECKING:  # it takes time to import, and not everybody needs it
    from ebpfprof.collectors.cpu import CpuRecipe


@dataclass(frozen=True, slots=True)
class Options:
    """How to record; see the command line's options of the same names.

    Unless `kinds_given`, programs that are not Go's get those profiles that they can have.
    `labels` are the keys of the pprof labels to show: None for all, () for none.
    """

    kinds: tuple[Kind, ...] = ("block",)
    kinds_given: bool = True
    hz: int = 99
    kernel: bool = True
    labels: tuple[str, ...] | None = None
    block_rate_ns: int = 1
    mutex_fraction: int = 1
    by_lock: bool = False
    lock_labels: bool = False
    open_waits: bool = False
    runtime_locks: bool = False
    allow_unknown_go: bool = False
    max_overhead: float = 0.0
    """What may be taken of the target's CPU time, in percent; 0: whatever it takes."""

    @property
    def is_bounded(self) -> bool:
        """Whether targets are watched in windows, where watching them all the time costs more."""
        return self.max_overhead > 0 and self.waiting

    @property
    def waiting(self) -> bool:
        """Whether waits are to be recorded at all."""
        return "block" in self.kinds or "mutex" in self.kinds

    @property
    def cpu_recipe(self) -> CpuRecipe:
        """What the sampler is to record."""
        from ebpfprof.collectors.cpu import CpuRecipe

        # Where waits are recorded, too, half of the bound is theirs whatever sampling takes.
        max_share = self.max_overhead / (200 if self.waiting else 100)
        keys = key_hashes(self.labels)
        return CpuRecipe(self.hz, self.kernel, self.labels != (), keys, max_share)

    @property
    def recipe(self) -> Recipe:
        """What the collector is to record."""
        return Recipe(
            block="block" in self.kinds,
            mutex="mutex" in self.kinds,
            block_rate_ns=self.block_rate_ns,
            mutex_fraction=self.mutex_fraction,
            by_lock=self.by_lock or self.lock_labels,
            runtime_locks=self.runtime_locks,
            labels=self.labels != (),
            label_keys=key_hashes(self.labels),
            windows=self.is_bounded,
        )

    def sampling(self, kind: Kind) -> str:
        """In words, which events of a kind are taken."""
        if kind == "block" and self.block_rate_ns > 1:
            return f"sampled at a rate of {self.block_rate_ns} ns"
        if kind == "mutex" and self.mutex_fraction > 1:
            return f"one release in {self.mutex_fraction}, scaled"
        if kind == "cpu":
            return f"{self.hz} samples per second of CPU time"
        return "every event"
