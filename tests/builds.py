"""The programs that probes and profiles are tested on, by Go version and build mode."""

from __future__ import annotations

import os

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

# Recording each of them takes a quarter of an hour. What is recorded unless EBPFPROF_ALL_BUILDS is
# set: every version, every mode of the newest, and of older ones those whose code differs most.
_ALWAYS = (
    *((minor, "plain") for minor in MINORS),
    *((MINORS[-1], mode) for mode in toolchains.MODES),
    *(("1.19", mode) for mode in ("debug", "cgopie")),
    *(("1.22", mode) for mode in ("stripped", "pie", "pgo", "pgopark")),
    ("1.25", "pgopark"),
)
RECORDED = tuple(
    build for build in BUILDS if build in _ALWAYS or os.environ.get("EBPFPROF_ALL_BUILDS")
)
