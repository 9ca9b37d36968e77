"""Seeds that only Go or a C compiler can make: saved, so that fuzzing needs neither.

    python -m tests.fuzz.seeds     saves them again

With EBPFPROF_REAL_PROGRAMS set, as in the full run, they are made instead.
"""

from __future__ import annotations

import json
import lzma
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.fuzz.elfs import remember

Seeds = Callable[[], Sequence[bytes]]
FILE: Final = Path(__file__).parent / "seeds.xz"
MAKERS: Final[dict[str, Seeds]] = {}
"""All functions that make such seeds, by module and name."""


def saved_seeds(make: Seeds) -> Seeds:
    """Decorates a function that makes seeds: the result has what it returned when it was saved."""
    name = f"{make.__module__.rpartition('.')[2]}.{make.__name__}"
    assert name not in MAKERS
    MAKERS[name] = make

    @cache
    def seeds() -> Sequence[bytes]:
        return make() if os.environ.get("EBPFPROF_REAL_PROGRAMS") else _saved()[name]

    return seeds


@cache
def _saved() -> dict[str, list[bytes]]:
    line, _, data = lzma.decompress(FILE.read_bytes()).partition(b"\n")
    seeds: dict[str, list[bytes]] = {}
    start = 0
    for name, sizes in json.loads(line).items():
        seeds[name] = []
        for size in sizes:
            seeds[name].append(data[start : start + size])
            remember(seeds[name][-1])
            start += size
    return seeds


def save() -> None:
    """Make all seeds, and write the file."""
    seeds = {name: make() for name, make in MAKERS.items()}
    sizes = {name: [len(seed) for seed in made] for name, made in seeds.items()}
    content = json.dumps(sizes).encode() + b"\n" + b"".join(b"".join(m) for m in seeds.values())
    FILE.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    from tests.fuzz import parsers, seeds  # the module of that name has the makers, this one none

    assert parsers.PARSERS
    seeds.save()
    sys.exit()
