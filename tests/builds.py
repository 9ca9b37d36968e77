"""The programs that probes and profiles are tested on, by Go version and build mode."""

from __future__ import annotations

from tests import toolchains
from tests.toolchains import MINORS, toolchain

VERSIONS = MINORS

# Where gopark is inlined, every version lays out its code in its own way.
BUILDS = tuple(
    dict.fromkeys(
        (
            *toolchains.BUILDS,
            *((minor, "pgopark") for minor in MINORS if "pgopark" in toolchain(minor).modes),
        )
    )
)
