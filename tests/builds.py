"""Go versions and build modes of tests: one of each test in the gate, all in the full run.

@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize(("version", "mode"), builds())
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pytest

from tests import toolchains
from tests.toolchains import MINORS

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

VERSIONS: Final = MINORS
NEWEST: Final = MINORS[-1]
GENERIC: Final = VERSIONS[VERSIONS.index("1.18") :]
"""The versions that build targets with type parameters: tracebacks, stdlib."""

# Where gopark is inlined, every version lays out its code in its own way.
_ALL = tuple(
    dict.fromkeys(
        (
            *toolchains.BUILDS,
            *((minor, "pgopark") for minor in MINORS if "pgopark" in toolchains.modes_of(minor)),
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


def builds(*chosen: tuple[str, str]) -> Sequence[ParameterSet]:
    """Version and mode of each build, by default of BUILDS.

    The gate has one of the newest version, the plain one if it is there.
    """
    chosen = chosen or BUILDS
    kept = _newest(chosen)
    return [_parameter(*build, in_gate=build == kept) for build in chosen]


def pairs(*chosen: tuple[str, str]) -> Sequence[ParameterSet]:
    """The same for a single parameter, a pair of version and mode."""
    chosen = chosen or BUILDS
    kept = _newest(chosen)
    return [
        pytest.param(build, id="-".join(build), marks=() if build == kept else pytest.mark.full)
        for build in chosen
    ]


def versions(*chosen: str) -> Sequence[ParameterSet]:
    """Each Go version, by default of VERSIONS. The gate has the last one."""
    chosen = chosen or VERSIONS
    return [_parameter(version, in_gate=version == chosen[-1]) for version in chosen]


def _newest(chosen: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return max(chosen, key=lambda build: (MINORS.index(build[0]), build[1] == "plain"))


def in_full(*cases: object) -> Sequence[ParameterSet]:
    """More cases for the full run: values, or tuples of them if a case has several."""
    return [
        _parameter(*(case if isinstance(case, tuple) else (case,)), in_gate=False) for case in cases
    ]


def _parameter(*values: object, in_gate: bool) -> ParameterSet:
    return pytest.param(*values, marks=() if in_gate else pytest.mark.full)
