"""tests/builds.py: what the gate has of all builds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from tests.builds import BUILDS, NEWEST, VERSIONS, builds, versions

pytestmark = pytest.mark.machine

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def in_gate(parameters: Iterable[ParameterSet]) -> list[tuple[object, ...]]:
    return [tuple(parameter.values) for parameter in parameters if not parameter.marks]


def test_the_gate_has_the_newest_build() -> None:
    assert in_gate(builds()) == [(NEWEST, "plain")]
    assert [parameter.values for parameter in builds()] == list(BUILDS)
    assert in_gate(builds(("1.19", "cgo"), (NEWEST, "pie"), ("1.22", "plain"))) == [(NEWEST, "pie")]


def test_the_gate_has_the_last_version() -> None:
    assert in_gate(versions()) == [(NEWEST,)]
    assert [parameter.values for parameter in versions()] == [(version,) for version in VERSIONS]
    assert in_gate(versions("1.19", "1.24")) == [("1.24",)]
