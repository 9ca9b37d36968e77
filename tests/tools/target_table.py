"""The table of builds in docs/targets.md, made of markers that stand at the tests of each build.

@pytest.mark.target("`-race`", "everything") is a row: a build, and what works. Both are texts, or
constants of the module with a text, so that the table needs no test to be imported. pytest knows
the marker, and does nothing with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path("docs/targets.md")
BEGIN: Final = "<!-- Builds: written by python -m tests.tools.generate_docs. -->\n"
END: Final = "<!-- End of builds. -->\n"
EVERYTHING: Final = "everything"
_MARKER: Final = "mark.target("


class Mark(NamedTuple):
    """A marker: a build, what works, and the file of the test."""

    build: str
    works: str
    file: str


def marks(text: str, file: str) -> Iterator[Mark]:
    """The markers in the text of a Python file. Raises ValueError if one has no two texts."""
    if _MARKER not in text:
        return
    tree = ast.parse(text)
    constants = {
        node.target.id: getattr(node.value, "value", None)
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.target":
            arguments = (constants.get(ast.unparse(each), each) for each in node.args)
            match [getattr(argument, "value", argument) for argument in arguments]:
                case [str(build), str(works)]:
                    yield Mark(build, works, file)
                case _:
                    raise ValueError(f"{file}:{node.lineno}: a target has a build and what works.")


def table(found: list[Mark]) -> str:
    """The rows in Markdown: first builds with which everything works, then by their names.

    Raises ValueError if tests disagree on what works.
    """
    files: dict[str, list[str]] = {}
    works: dict[str, str] = {}
    for mark in found:
        if works.setdefault(mark.build, mark.works) != mark.works:
            raise ValueError(f"{mark.build}: {works[mark.build]!r} or {mark.works!r}?")
        files.setdefault(mark.build, []).append(f"`{mark.file}`")
    rows = ["| build | what works | tests |", "|---|---|---|"]
    for build in sorted(works, key=lambda each: (works[each] != EVERYTHING, works[each], each)):
        tests = ", ".join(sorted(set(files[build])))
        rows.append(f"| {build} | {works[build]} | {tests} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page with the table of all tests' markers."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [m for path in tests for m in marks(path.read_text(), str(path.relative_to(ROOT)))]
    before, _, rest = (ROOT / PAGE).read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}"
