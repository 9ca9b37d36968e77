"""The table of builds, which is made of the markers of tests."""

from __future__ import annotations

import pytest

from tests.tools.target_table import ROOT, Mark, marks, page, table

TEST = """
@pytest.mark.parametrize("mode", [pytest.param(1, marks=pytest.mark.target("`-race`", "all"))])
@pytest.mark.target("PIE, "
    "cgo", "all")
def test_it(mode): ...
"""


def test_markers_are_found_wherever_they_stand() -> None:
    found = set(marks(TEST, "a.py"))
    assert found == {Mark("`-race`", "all", "a.py"), Mark("PIE, cgo", "all", "a.py")}
    assert list(marks("@pytest.mark.full\ndef test_it(): ...", "a.py")) == []


def test_what_works_may_be_a_constant() -> None:
    text = 'WORKS: Final = "all"\n@pytest.mark.target("PIE", WORKS)\ndef test_it(): ...'
    assert list(marks(text, "a.py")) == [Mark("PIE", "all", "a.py")]


@pytest.mark.parametrize("arguments", ['"PIE"', '"PIE", WORKS', '"PIE", "all", "more"'])
def test_a_marker_has_two_texts(arguments: str) -> None:
    with pytest.raises(ValueError, match=r"a\.py:1: a target has"):
        list(marks(f"@pytest.mark.target({arguments})\ndef test_it(): ...", "a.py"))


def test_builds_with_which_everything_works_come_first() -> None:
    found = [Mark("a", "CPU", "x.py"), Mark("b", "everything", "y.py"), Mark("a", "CPU", "y.py")]
    assert table(found).splitlines()[2:] == [
        "| b | everything | `y.py` |",
        "| a | CPU | `x.py`, `y.py` |",
    ]


def test_tests_agree_on_what_works() -> None:
    with pytest.raises(ValueError, match="a: 'CPU' or 'everything'"):
        table([Mark("a", "CPU", "x.py"), Mark("a", "everything", "y.py")])


def test_every_odd_target_is_in_the_table() -> None:
    shown = page()
    files = {path.name for path in (ROOT / "tests" / "odd_targets").glob("test_*.py")}
    files -= {"test_few_files.py"}  # a limit of ours, not a target's
    assert [file for file in files if f"`tests/odd_targets/{file}`" not in shown] == []
