"""The names and words of all that can be lost in the kernel, read from bpf/common/losses.h."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from ebpfprof.kernel.sources import bpf_folder

if TYPE_CHECKING:  # numpy takes long to import: only when maps are read
    import numpy.typing as npt


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


@cache
def loss_kinds() -> tuple[tuple[str, str], ...]:
    """All (name, text) pairs, in the order of the kernel's `losses` array."""
    source = (bpf_folder() / "common" / "losses.h").read_text()
    return tuple(re.findall(r'^LOSS\((\w+), "([^"]+)"\)$', source, re.MULTILINE))


def losses(
    counts: npt.ArrayLike, more: Mapping[str, Mapping[int, int]] | None = None
) -> tuple[Loss, ...]:
    """Those kinds that were counted at all, from the values of the `losses` array.

    It has as many for each target as there are kinds. `more` is what was lost of these outside of
    the kernel, by name and target.
    """
    import numpy as np

    kinds, all_counts = loss_kinds(), np.asarray(counts)
    lost_at = np.flatnonzero(all_counts)
    sums = dict(zip(lost_at.tolist(), all_counts[lost_at].tolist(), strict=True))
    for kind, (name, _) in enumerate(kinds):
        for target, count in (more or {}).get(name, {}).items():
            at = target * len(kinds) + kind
            if count and at < len(all_counts):
                sums[at] = sums.get(at, 0) + count
    return tuple(
        Loss(*kinds[at % len(kinds)], count, target=at // len(kinds))
        for at, count in sorted(sums.items())
    )


def losses_of(losses: Iterable[Loss], target: int) -> tuple[Loss, ...]:
    """What was lost of one process, and of all together."""
    return tuple(loss for loss in losses if loss.target in (None, target))


def losses_since(later: Iterable[Loss], earlier: Iterable[Loss]) -> tuple[Loss, ...]:
    """What was lost between two readings of sums."""
    before = {replace(loss, count=0): loss.count for loss in earlier}
    found = (
        replace(each, count=each.count - before.get(replace(each, count=0), 0)) for each in later
    )
    return tuple(loss for loss in found if loss.count > 0)


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
