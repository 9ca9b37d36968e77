"""The names and words of all that can be lost in the kernel, read from bpf/common/losses.h."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from ebpfprof.kernel.sources import bpf_folder


@dataclass(frozen=True, slots=True)
class Loss:
    """How often one thing was lost: `name` for machines, `text` for people.

    `kinds` are the kinds of profile that lack it; () stands for all.
    """

    name: str
    text: str
    count: int
    kinds: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.count} {self.text} ({self.name})"


@cache
def loss_kinds() -> tuple[tuple[str, str], ...]:
    """All (name, text) pairs, in the order of the kernel's `losses` array."""
    source = (bpf_folder() / "common" / "losses.h").read_text()
    return tuple(re.findall(r'^LOSS\((\w+), "([^"]+)"\)$', source, re.MULTILINE))


def losses(counts: list[int], more: Mapping[str, int] | None = None) -> tuple[Loss, ...]:
    """Those kinds that were counted at all, from the values of the `losses` array.

    `more` is what was lost of these outside of the kernel, by name.
    """
    found = (
        Loss(name, text, count + (more or {}).get(name, 0))
        for (name, text), count in zip(loss_kinds(), counts, strict=True)
    )
    return tuple(loss for loss in found if loss.count)


def losses_since(later: Iterable[Loss], earlier: Iterable[Loss]) -> tuple[Loss, ...]:
    """What was lost between two readings of sums."""
    before = {(loss.name, loss.kinds): loss.count for loss in earlier}
    found = (
        replace(each, count=each.count - before.get((each.name, each.kinds), 0)) for each in later
    )
    return tuple(loss for loss in found if loss.count > 0)


def losses_together(*several: Iterable[Loss]) -> tuple[Loss, ...]:
    """What was lost in all of several times, or by several profilers."""
    all_losses = [loss for losses in several for loss in losses]
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for loss in all_losses:
        counts[loss.name, loss.kinds] += loss.count
    texts = {(loss.name, loss.kinds): loss.text for loss in all_losses}
    return tuple(Loss(name, text, counts[name, of], of) for (name, of), text in texts.items())


def of_all_kinds(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The same, added up whatever kinds of profile lack it."""
    return losses_together(replace(loss, kinds=()) for loss in losses)
