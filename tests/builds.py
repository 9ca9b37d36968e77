"""The programs that probes and profiles are tested on, by Go version and build mode."""

from __future__ import annotations

import os

from tests import toolchains
from tests.toolchains import MINORS, toolchain

VERSIONS = MINORS

# Where gopark is inlined, every version lays out its code in its own way.
_ALL = tuple(
    dict.fromkeys(
        (
            *toolchains.BUILDS,
            *((minor, "pgopark") for minor in MINORS if "pgopark" in toolchain(minor).modes),
        )
    )
)

# To build and record each of them takes long. What is tested unless EBPFPROF_ALL_BUILDS is set:
# every version, every mode of the newest, and of older ones those whose code differs most.
_ALWAYS = (
    *((minor, "plain") for minor in MINORS),
    *((MINORS[-1], mode) for mode in toolchains.MODES),
    ("1.19", "debug"),
    *((minor, "pgopark") for minor in ("1.22", "1.25")),
)
BUILDS = tuple(build for build in _ALL if build in _ALWAYS or os.environ.get("EBPFPROF_ALL_BUILDS"))
