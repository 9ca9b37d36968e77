"""What switches a check off, or catches more than it names, has its reason beside it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.unit.house.test_names import modules

_BARE = re.compile(r"#\s*(noqa(: ?[A-Z]+\d+(, ?[A-Z]+\d+)*)?|type: ignore(\[[\w, -]+\])?)\s*$")
_BROAD = ("", "Exception", "BaseException")
_SUPPRESS = ("suppress", "contextlib.suppress")


def without_reason(source: str) -> Iterator[int]:
    """The lines of a module that need a reason and have none.

    `noqa` and `type: ignore` have it behind them; a broad except and suppress() have a comment in
    their line, above it, or within their first statement.
    """
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    yield from (line for line, comment in comments.items() if _BARE.search(comment))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ExceptHandler(type=caught):
                needs = (ast.unparse(caught) if caught else "") in _BROAD
            case ast.With(items=items) | ast.AsyncWith(items=items):
                needs = any(_called(item.context_expr) in _SUPPRESS for item in items)
            case _:
                continue
        last = node.body[0].end_lineno or node.lineno
        if needs and not comments.keys() & {*range(node.lineno - 1, last + 1)}:
            yield node.lineno


def _called(node: ast.expr) -> str:
    """The name of the function that is called; "" if none is."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


@pytest.mark.parametrize(
    ("folder", "least"),
    [("ebpfprof", 500), ("symbolizer", 50), ("vagrant", 5), ("tests", 300)],
)
def test_exceptions_from_checks_have_reasons(folder: str, least: int) -> None:
    sources = modules([folder])
    assert len(sources) >= least
    bare = {path: sorted(without_reason(source)) for path, source in sources.items()}
    assert {path: lines for path, lines in bare.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("a = 1  # noqa", [1]),
        ("a = 1  # noqa: E501", [1]),
        ("a = 1  # noqa: E501, F401", [1]),
        ("a = 1  # noqa: E501 - a table", []),
        ("a = 1  # noqa: E501 (a table)", []),
        ("a = 1  # type: ignore[misc]", [1]),
        ("a = 1  # type: ignore[misc]  # it has none", []),
        ("a = '# noqa'", []),
        ("try:\n    f()\nexcept Exception:\n    pass", [3]),
        ("try:\n    f()\nexcept:\n    pass", [3]),
        ("try:\n    f()\nexcept Exception:  # any\n    pass", []),
        ("try:\n    f()\nexcept OSError:\n    pass", []),
        ("with suppress(OSError):\n    f()", [1]),
        ("with lock, suppress(OSError):\n    f()", [1]),
        ("with suppress(OSError):  # gone\n    f()", []),
        ("# gone\nwith suppress(OSError):\n    f()", []),
        ("with suppress(OSError):\n    f()  # gone", []),
        ("with lock:\n    f()", []),
    ],
)
def test_missing_reasons_are_found(source: str, lines: list[int]) -> None:
    assert list(without_reason(f"{source}\n")) == lines
