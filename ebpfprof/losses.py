"""The names and words of everything that can be lost in the kernel, read from bpf/losses.h."""

import re
from dataclasses import dataclass

from ebpfprof.sources import bpf_folder


@dataclass(frozen=True, slots=True)
class Loss:
    """How often one thing was lost: `name` for machines, `text` for people."""

    name: str
    text: str
    count: int

    def __str__(self) -> str:
        return f"{self.count} {self.text} ({self.name})"


def loss_kinds() -> tuple[tuple[str, str], ...]:
    """All (name, text) pairs, in the order of the kernel's `losses` array."""
    source = (bpf_folder() / "losses.h").read_text()
    return tuple(re.findall(r'^LOSS\((\w+), "([^"]+)"\)$', source, re.MULTILINE))


def losses(counts: list[int]) -> tuple[Loss, ...]:
    """Those kinds that were counted at all, from the values of the `losses` array."""
    return tuple(
        Loss(name, text, count)
        for (name, text), count in zip(loss_kinds(), counts, strict=True)
        if count
    )
