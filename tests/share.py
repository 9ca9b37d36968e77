"""The share of the tests that CI runs: `pytest --share`.

All of them take most of an hour. Left out are those marked `long`, and of each test that is run for
many Go versions and build modes, most, unless it is marked `every_build`. The test's name tells
which stay: the same ones each time, and each of BUILDS in many tests. To compile Go's packages
takes longer than many tests, so no other builds are made where those will do.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tests.toolchains import MINORS, MODES

BUILDS: Final = frozenset(
    (
        *((minor, "plain") for minor in MINORS),
        *((MINORS[-1], mode) for mode in ("stripped", "debug", "pie", "cgo", "cgopie", "pgopark")),
    )
)
BUILDS_PER_KEPT: Final = 8


def share(names: Iterable[str], every_build: Iterable[str] = ()) -> set[str]:
    """The names (node ids of pytest) of those that stay; of `every_build`, all that may be."""
    alike = defaultdict[str, list[str]](list)
    for name in names:
        alike[_without_build(name)].append(name)
    kept = {name for common, each in alike.items() for name in _spread(common, _made(each))}
    return kept | {name for name in every_build if _build(name) in BUILDS}


def _made(names: Sequence[str]) -> Sequence[str]:
    return [name for name in names if _build(name) in BUILDS] or names


def _words(name: str) -> list[str]:
    return name.partition("[")[2].removesuffix("]").split("-")


def _build(name: str) -> tuple[str, str] | None:
    """The Go version and build mode that are in a test's name, if there are."""
    minors = [word for word in _words(name) if word in MINORS]
    modes = [word for word in _words(name) if word in MODES]
    return (minors[0], modes[0] if modes else "plain") if minors else None


def _without_build(name: str) -> str:
    """What is the same for a test of all Go versions and build modes."""
    if not _build(name):
        return name
    others = [word for word in _words(name) if word not in (*MINORS, *MODES)]
    return "-".join([name.partition("[")[0], *others])


def _spread(common: str, names: Sequence[str]) -> Iterable[str]:
    """One in so many, at even distances from one that depends on what they have in common."""
    first = zlib.crc32(common.encode()) % len(names)
    return {names[(first + at) % len(names)] for at in range(0, len(names), BUILDS_PER_KEPT)}
