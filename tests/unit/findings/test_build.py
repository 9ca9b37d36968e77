"""Builds and settings that are fit for tests only."""

from __future__ import annotations

import pytest

from ebpfprof.findings import build as rule
from ebpfprof.findings.evidence import ProgramFacts
from ebpfprof.findings.finding import Finding, Level
from tests.unit.findings.evidence import evidence


def found(*settings: tuple[str, str], is_race: bool = False) -> list[Finding]:
    program = ProgramFacts(42, "shop", "go1.27.3", "", settings, is_race)
    return list(rule.find(evidence(program=program)))


def test_a_build_with_the_race_detector() -> None:
    (finding,) = found(is_race=True)
    assert finding.kind == "race_build"
    assert finding.level is Level.NOTE


def test_settings_for_debugging() -> None:
    (finding,) = found(("gctrace", "1"), ("http2client", "0"), ("asyncpreemptoff", "1"))
    assert finding.kind == "debug_settings"
    assert finding.title == "GODEBUG has gctrace=1 and asyncpreemptoff=1."
    assert finding.lines == (
        "gctrace=1: each collection writes a line.",
        "asyncpreemptoff=1: long loops delay collections and other goroutines.",
    )


@pytest.mark.parametrize(
    ("name", "value", "is_harmful"),
    [
        ("gctrace", "0", False),
        ("gctrace", "yes", False),
        ("schedtrace", "1000", True),
        ("invalidptr", "0", True),
        ("invalidptr", "1", False),
        ("madvdontneed", "0", True),
        ("madvdontneed", "1", False),
        ("inittrace", "1", False),
        ("netdns", "go", False),
        ("x509sha1", "1", False),
        ("\x1b[2J", "1", False),
    ],
)
def test_which_settings_are_harmful(name: str, value: str, *, is_harmful: bool) -> None:
    assert bool(found((name, value))) is is_harmful
