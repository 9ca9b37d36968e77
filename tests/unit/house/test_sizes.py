"""How large things may be: what has many lines or methods has more than one job."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tools.rooms import ROOT

MOST_LINES = 400
MOST_METHODS = 20
SOURCES = [
    path
    for package in ("ebpfprof", "symbolizer", "bpf")
    for path in sorted((ROOT / package).rglob("*.*"))
    if path.suffix in (".py", ".c", ".h") and "headers" not in path.parts
]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def methods(source: str) -> Iterator[tuple[str, int]]:
    """The classes of a module, each with how many methods it has."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield (
                node.name,
                sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body),
            )


def test_a_file_has_at_most_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in SOURCES}
    assert len(lengths) > 150
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_a_test_module_has_at_most_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in TESTS}
    assert len(lengths) > 300
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_a_class_has_at_most_20_methods() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}": count
        for path in SOURCES
        if path.suffix == ".py"
        for name, count in methods(path.read_text())
    }
    assert len(found) > 200
    assert {name: count for name, count in found.items() if count > MOST_METHODS} == {}


@pytest.mark.parametrize("count", [0, 3])
def test_methods_are_counted(count: int) -> None:
    lines = [f"    async def m{n}(self): ..." for n in range(count)] or ["    x = 1"]
    assert list(methods("\n".join(["class C:", *lines, "def f(): ..."]))) == [("C", count)]
