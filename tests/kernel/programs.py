"""The targets of these tests: real programs, and copies of them that were tampered with."""

from __future__ import annotations

from pathlib import Path

from tests.toolchains import toolchain

TARGETS = Path(__file__).parent.parent / "targets"
NEWEST = "1.27"


def program(name: str, minor: str = NEWEST, mode: str = "plain") -> Path:
    """One of tests/targets, built."""
    return toolchain(minor).build(TARGETS / name, mode)
