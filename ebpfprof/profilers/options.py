"""How to record: what the command line asks for."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ebpfprof.profile.model import Kind
from ebpfprof.profilers.registry import kind_named


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

    def sampling(self, kind: Kind) -> str:
        """In words, which events of a kind are taken."""
        return kind_named(kind).sampling(asdict(self))
