"""How to record: what the command line asks for."""

from dataclasses import dataclass

from ebpfprof.collectors.waits import Recipe, Waiting


@dataclass(frozen=True, slots=True)
class Options:
    """How to record; see the command line's options of the same names.

    `labels` are the keys of the pprof labels to show: None for all, () for none.
    """

    kinds: tuple[Waiting, ...] = ("block",)
    block_rate_ns: int = 1
    mutex_fraction: int = 1
    by_lock: bool = False
    lock_labels: bool = False
    open_waits: bool = False
    runtime_locks: bool = False
    labels: tuple[str, ...] | None = None
    allow_unknown_go: bool = False

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
        )

    def sampling(self, kind: Waiting) -> str:
        """In words, which events of a kind are taken."""
        if kind == "block" and self.block_rate_ns > 1:
            return f"sampled at a rate of {self.block_rate_ns} ns"
        if kind == "mutex" and self.mutex_fraction > 1:
            return f"one release in {self.mutex_fraction}, scaled"
        return "every event"
