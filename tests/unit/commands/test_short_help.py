"""The help of each verb fits a terminal of 80x24, examples first; --help-all has the rest."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.commands.verb import VERBS

WIDTH = 80


def shown(verb: str, option: str) -> str:
    result = CliRunner().invoke(cli, [verb, option], terminal_width=WIDTH, prog_name="ebpfprof")
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_small_terminal(verb: str) -> None:
    rows = [1 + max(len(line) - 1, 0) // WIDTH for line in shown(verb, "--help").splitlines()]
    assert sum(rows) <= 23  # and the prompt


@pytest.mark.parametrize("verb", VERBS)
def test_examples_stand_above_options(verb: str) -> None:
    text = shown(verb, "--help")
    assert f"ebpfprof {verb}" in text[text.index("Examples:") : text.index("Options:")]


@pytest.mark.parametrize("verb", VERBS)
def test_help_all_shows_each_option(verb: str) -> None:
    text = shown(verb, "--help-all")
    command = cli.get_command(click.Context(cli, help_option_names=[]), verb)
    assert command is not None
    params = command.get_params(click.Context(command, help_option_names=[]))
    options = [param for param in params if isinstance(param, click.Option)]
    assert [option.opts for option in options if option.opts[-1] not in text] == []


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("attach", ["--duration", "--profile", "--name", "--max-overhead", "--by-lock"]),
        ("attach", ["--hide-idle / --show-idle", "--output", "--format"]),
        ("run", ["--duration", "--profile"]),
        ("top", ["--profile", "--once"]),
        ("serve", ["--listen", "--continuous"]),
        ("dump", ["--name", "--watch"]),
        ("report", ["--output", "--format"]),
        ("diff", ["--output", "--per-second"]),
    ],
)
def test_help_shows_the_usual_options_and_where_the_others_are(
    verb: str, options: list[str]
) -> None:
    text = shown(verb, "--help")
    listed = text[text.index("Options:") :]
    assert [option for option in options if option not in listed] == []
    assert f"ebpfprof {verb} --help-all" in listed
