"""Messages: commands to type stand on lines of their own (console.text.to_type), to be copied."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tools.rooms import ROOT

_SHOWN = ("say", "notify")
FILES = sorted((ROOT / "ebpfprof").rglob("*.py"))


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts in errors that are raised or returned, and in what is printed."""
    for node in ast.walk(tree):
        shown = isinstance(node, ast.Call) and getattr(node.func, "id", "") in _SHOWN
        if shown or isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_no_message_has_commands_between_backticks() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in FILES
        for line, text in messages(ast.parse(path.read_text()))
        if "`" in text
    ]
    assert found == []


def test_the_check_finds_one() -> None:
    code = 'def f():\n    raise ValueError(f"Type {1} `this`.")\n    say("and `that`")\n'
    assert [line for line, text in messages(ast.parse(code)) if "`" in text] == [2, 3]
    assert Path(ROOT / "ebpfprof" / "commands" / "run.py") in FILES
