"""The table of faults names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def functions(path: str) -> set[str]:
    """The tests in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_named_test_exists() -> None:
    named = NAMED.findall((ROOT / "docs/faults.md").read_text())
    assert len(named) > 40
    assert [each for each in named if each[1] not in functions(each[0])] == []


def test_each_row_of_the_tables_names_a_test() -> None:
    text = (ROOT / "docs/faults.md").read_text()
    tables = re.findall(r"^\| fault \|.*\n\|---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    assert len(lines) > 40
    assert [line for line in lines if not NAMED.search(line.split(" | ")[-1])] == []


def test_each_test_of_faults_is_named() -> None:
    named = {name for _, name in NAMED.findall((ROOT / "docs/faults.md").read_text())}
    files = [*(ROOT / "tests/kernel").glob("test_faults_*.py")]
    assert len(files) > 5
    there = {
        name
        for file in files
        for name in functions(str(file.relative_to(ROOT)))
        if name.startswith("test_")
    }
    assert there - named == set()
