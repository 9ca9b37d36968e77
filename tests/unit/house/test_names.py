"""Names of classes: one name, one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.tools.rooms import ROOT

SHARED = {
    "Frame": "a frame of a profile, and a frame that the symbolizer finds: modules that use both "
    "import the latter as GoFrame or CodeFrame",
    "LiveTarget": "the protocol in `continuous` is what that room needs of the class in "
    "`recording`, which it must not import",
    "Symbol": "a symbol of an ELF file, and a symbol of a Go variable: rooms of the symbolizer",
    "Symbols": "an endpoint of the server, and the symbols of Go variables: neither meets the "
    "other",
}
"""Names that several public classes have, each with the reason why that is no harm."""


def top_level_classes(source: str) -> Iterator[str]:
    """The public classes that a module declares, without classes within classes."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def repeated(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that several classes have, each with the modules that declare one."""
    places = defaultdict[str, list[str]](list)
    for module, source in sources.items():
        for name in top_level_classes(source):
            places[name].append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def modules(packages: Iterable[str]) -> dict[str, str]:
    """The source of each module of these packages, by its path from the root."""
    paths: Iterable[Path] = (
        path for package in packages for path in (ROOT / package).rglob("*.py")
    )
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(paths)}


def test_no_two_classes_have_the_same_name() -> None:
    found = modules(("ebpfprof", "symbolizer"))
    assert len(found) > 150
    assert {name: where for name, where in repeated(found).items() if name not in SHARED} == {}


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ("class A: ...", "class B: ...", []),
        ("class A: ...", "class B: ...\nclass A(B): ...", ["A"]),
        ("class _A: ...", "class _A: ...", []),
        ("class A:\n    class C: ...", "class B:\n    class C: ...", []),
    ],
)
def test_repeated_names_are_found(one: str, other: str, names: list[str]) -> None:
    assert list(repeated({"one.py": one, "other.py": other})) == names
