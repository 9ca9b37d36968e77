"""The share of the tests that CI runs: `pytest --share`.

All of them take most of an hour. Left out are those marked `long`, and of each test that is run for
many Go versions and build modes, most, unless it is marked `every_build`. The test's name tells
which stay: the same ones each time, and each version and mode in many tests.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tests.toolchains import MINORS, MODES

BUILDS_PER_KEPT: Final = 8


def share(names: Iterable[str]) -> set[str]:
    """The names (node ids of pytest) of those that stay."""
    alike = defaultdict[str, list[str]](list)
    for name in names:
        alike[_without_build(name)].append(name)
    return {name for common, each in alike.items() for name in _spread(common, each)}


def _without_build(name: str) -> str:
    """What is the same for a test of all Go versions and build modes."""
    test, _, parameters = name.partition("[")
    words = parameters.removesuffix("]").split("-")
    if not set(words) & set(MINORS):
        return name
    return "-".join([test, *(word for word in words if word not in (*MINORS, *MODES))])


def _spread(common: str, names: Sequence[str]) -> Iterable[str]:
    """One in so many, at even distances from one that depends on what they have in common."""
    first = zlib.crc32(common.encode()) % len(names)
    return {names[(first + at) % len(names)] for at in range(0, len(names), BUILDS_PER_KEPT)}
