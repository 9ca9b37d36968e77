"""Which combinations of Go version and build mode the tests go through."""

from __future__ import annotations

from tests.toolchains import MODES, toolchain

VERSIONS = ("1.19", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27")

# Every version plain and with gopark inlined; every mode on the oldest, the newest and 1.22.
_EVERYWHERE = ("plain", "pgopark")
_IN_EVERY_MODE = ("1.19", "1.22", "1.27")

BUILDS = tuple(
    (version, mode)
    for version in VERSIONS
    for mode in MODES
    if mode in toolchain(version).modes and (mode in _EVERYWHERE or version in _IN_EVERY_MODE)
)
