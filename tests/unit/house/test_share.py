"""tests/share.py: what CI runs of all the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests import builds
from tests.share import BUILDS, BUILDS_PER_KEPT, share
from tests.toolchains import MINORS

ROOT = Path(__file__).parents[3]


def names(test: str) -> list[str]:
    return [f"{test}[{minor}-{mode}]" for minor, mode in builds.BUILDS]


def test_tests_without_a_build_stay_in_the_share() -> None:
    others = {"t.py::test_one", "t.py::test_two[plain]", "t.py::test_two[a-b]", "t.py::test_1.27"}
    assert share(others) == others


def test_the_same_few_of_many_builds_stay_in_the_share() -> None:
    kept = share(names("t.py::test_one"))
    assert len(kept) == -(-len(BUILDS) // BUILDS_PER_KEPT)
    assert kept < set(names("t.py::test_one"))
    assert share(names("t.py::test_one")) == kept


def test_each_build_is_in_the_share_of_some_test() -> None:
    tests = [f"t.py::test_{number}" for number in range(100)]
    kept = share(name for test in tests for name in names(test))
    assert {name.partition("[")[2] for name in kept} == {
        f"{minor}-{mode}]" for minor, mode in BUILDS
    }


def test_a_test_of_other_builds_only_stays_in_the_share() -> None:
    only = {"t.py::test_one[1.22-pgo]"}
    assert only == share(only)


def test_every_build_stays_for_tests_marked_so() -> None:
    kept = share(names("t.py::test_one"), names("t.py::test_one"))
    assert len(kept) == len(BUILDS)
    assert kept < set(names("t.py::test_one"))


def test_other_parameters_stay_in_the_share() -> None:
    """Wherever in the name the build is."""
    kept = share(f"t.py::test_one[{kind}-{minor}]" for kind in ("block", "cpu") for minor in MINORS)
    assert sorted(name.partition("[")[2].partition("-")[0] for name in kept) == ["block", "cpu"]


def test_the_share_compares_every_version_and_mode_with_go() -> None:
    """As pytest takes the share."""
    found = {
        word
        for line in collected("--share", "tests/differential")
        for words in re.findall(r"test_(?:block|mutex|cpu)\.py::\w+\[(.*)\]", line)
        for word in words.split("-")
    }
    assert {word for build in BUILDS for word in build} <= found


def test_long_tests_are_not_in_the_share() -> None:
    file = "tests/unit/house/test_toolchains.py"
    everything, kept, long = (
        collected(file),
        collected("--share", file),
        collected("-m", "long", file),
    )
    assert long
    assert kept
    assert kept <= everything - long


def collected(*arguments: str) -> set[str]:
    """The names of the tests that pytest finds."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {line for line in done.stdout.splitlines() if "::" in line}
