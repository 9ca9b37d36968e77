"""What findings say to type next is a command that exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ebpfprof.findings
from ebpfprof.commands.cli import cli
from ebpfprof.commands.verb import VERBS

FOLDER = Path(ebpfprof.findings.__file__).parent
PID = "1234"


def texts(tree: ast.AST) -> Iterator[str]:
    """All strings of a module; what they have of variables is a number."""
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else PID for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in parts:
            yield from [node.value] if isinstance(node.value, str) else []


def given(tree: ast.AST) -> Iterator[str]:
    """The texts that are given as `next` where they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "next":
            yield from texts(node.value)


def commands() -> list[str]:
    found: list[str] = []
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text())
        # Also those that a function makes: they begin with a verb and have an option.
        made = (text for text in texts(tree) if text.split(" ")[0] in VERBS and "--pid" in text)
        found += [*given(tree), *made]
    return sorted({text for text in found if text})


def test_rules_say_what_to_type_next() -> None:
    assert len(commands()) > 3


@pytest.mark.parametrize("command", commands())
def test_it_is_a_command_that_exists(command: str) -> None:
    verb, *arguments = command.split(" ")
    assert verb in VERBS
    parent = click.Context(cli, **cli.context_settings)
    found = cli.get_command(parent, verb)
    assert found is not None
    context = found.make_context(verb, arguments, parent=parent)
    assert context.params["pids"] == [int(PID)]
