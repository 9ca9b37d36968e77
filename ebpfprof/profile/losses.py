"""What a recording lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Loss:
    """How often one thing was lost: `name` for machines, `text` for people.

    `kinds` are the kinds of profile that lack it; () stands for all. `target` is the number of the
    process of which it was lost; None: of all together.
    """

    name: str
    text: str
    count: int
    kinds: tuple[str, ...] = ()
    target: int | None = None

    def __str__(self) -> str:
        return f"{self.count} {self.text} ({self.name})"


def losses_of(losses: Iterable[Loss], target: int) -> tuple[Loss, ...]:
    """What was lost of one process, and of all together."""
    return tuple(loss for loss in losses if loss.target in (None, target))


def losses_since(later: Iterable[Loss], earlier: Iterable[Loss]) -> tuple[Loss, ...]:
    """What was lost between two readings of sums."""
    before = {replace(loss, count=0): loss.count for loss in earlier}
    differences = (
        replace(loss, count=loss.count - before.get(replace(loss, count=0), 0)) for loss in later
    )
    return tuple(loss for loss in differences if loss.count > 0)


def losses_together(*several: Iterable[Loss]) -> tuple[Loss, ...]:
    """What was lost in all of several times, or by several profilers."""
    counts: Counter[Loss] = Counter()
    for losses in several:
        for loss in losses:
            counts[replace(loss, count=0)] += loss.count
    return tuple(replace(loss, count=count) for loss, count in counts.items())


def losses_in_all(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The same, added up whatever kinds of profile lack it, and of all processes."""
    return losses_together(replace(loss, kinds=(), target=None) for loss in losses)
