"""`ebpfprof PID` is `ebpfprof explain PID`."""

from __future__ import annotations

import click
import pytest

from ebpfprof.commands.cli import cli
from ebpfprof.commands.verb import VERBS


def resolved(*arguments: str) -> tuple[str | None, list[str]]:
    name, _, rest = cli.resolve_command(click.Context(cli), list(arguments))
    return name, rest


@pytest.mark.parametrize("pids", ["1", "1234", "12,34"])
def test_a_process_alone_is_explained(pids: str) -> None:
    assert resolved(pids, "--json") == ("explain", [pids, "--json"])


@pytest.mark.parametrize("name", ["12a", "-1", "1,", "0x12", "١٢"])
def test_other_words_are_no_process(name: str) -> None:
    with pytest.raises(click.UsageError):
        resolved(name)


def test_no_verb_is_a_number() -> None:
    assert [name for name in VERBS if name.isdigit()] == []
