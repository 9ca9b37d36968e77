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


def test_tests_of_no_build_stay() -> None:
    others = {"t.py::test_one", "t.py::test_two[plain]", "t.py::test_two[a-b]", "t.py::test_1.27"}
    assert share(others) == others


def test_of_many_builds_few_stay_and_always_the_same() -> None:
    kept = share(names("t.py::test_one"))
    assert len(kept) == -(-len(BUILDS) // BUILDS_PER_KEPT)
    assert kept < set(names("t.py::test_one"))
    assert share(names("t.py::test_one")) == kept


def test_each_build_that_is_made_is_kept_by_some() -> None:
    tests = [f"t.py::test_{number}" for number in range(100)]
    kept = share(name for test in tests for name in names(test))
    assert {name.partition("[")[2] for name in kept} == {
        f"{minor}-{mode}]" for minor, mode in BUILDS
    }


def test_a_test_of_other_builds_only_stays() -> None:
    only = {"t.py::test_one[1.22-pgo]"}
    assert only == share(only)


def test_every_build_that_is_made() -> None:
    kept = share(names("t.py::test_one"), names("t.py::test_one"))
    assert len(kept) == len(BUILDS)
    assert kept < set(names("t.py::test_one"))


def test_other_parameters_stay() -> None:
    """Wherever in the name the build is."""
    kept = share(f"t.py::test_one[{kind}-{minor}]" for kind in ("block", "cpu") for minor in MINORS)
    assert sorted(name.partition("[")[2].partition("-")[0] for name in kept) == ["block", "cpu"]


def test_every_version_and_mode_is_compared_with_go_itself() -> None:
    """As pytest takes the share."""
    found = {
        word
        for line in collected("--share", "tests/differential")
        for words in re.findall(r"test_(?:block|mutex|cpu)\.py::\w+\[(.*)\]", line)
        for word in words.split("-")
    }
    assert {word for build in BUILDS for word in build} <= found


def test_what_is_long_is_left_out() -> None:
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
