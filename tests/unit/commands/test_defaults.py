"""Defaults from the environment and from files: which counts, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from ebpfprof.commands import defaults as module
from ebpfprof.commands.cli import cli
from ebpfprof.commands.defaults import defaults

ME = os.getuid()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The system's file and the user's; there is none yet."""
    both = tmp_path / "system.toml", tmp_path / "user.toml"

    def named() -> Iterator[tuple[Path, tuple[int, ...]]]:
        yield from ((path, (ME,)) for path in both)

    monkeypatch.setattr(module, "_files", named)
    for name in [each for each in os.environ if each.startswith("EBPFPROF_")]:
        monkeypatch.delenv(name)
    return both


def found(verb: str = "attach") -> dict[str, Any]:
    assert isinstance(cli, click.Group)
    return defaults(cli, click.Context(cli, **cli.context_settings), verb)


def refused(verb: str = "attach") -> str:
    with pytest.raises(click.UsageError) as refusal:
        found(verb)
    return refusal.value.message


def given(*arguments: str) -> Any:  # noqa: ANN401 - an option's value
    """What --duration of attach is, on such a command line."""
    assert isinstance(cli, click.Group)
    group = click.Context(cli, **cli.context_settings)
    command = cli.get_command(group, "attach")
    assert command is not None
    group.default_map = {"attach": found()}
    with command.make_context("attach", list(arguments), parent=group) as ctx:
        return ctx.params["duration_s"]


def test_the_command_line_beats_the_environment_and_that_the_files(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    system, user = files
    assert given("--pid", "1") == 30
    system.write_text('duration = "1m"\n')
    assert given("--pid", "1") == 60
    user.write_text("[attach]\nduration = 5\n")
    assert given("--pid", "1") == 5
    monkeypatch.setenv("EBPFPROF_DURATION", "7")
    assert given("--pid", "1") == 7
    monkeypatch.setenv("EBPFPROF_ATTACH_DURATION", "8s")
    assert given("--pid", "1") == 8
    assert given("--pid", "1", "-d", "9") == 9


def test_a_table_is_of_its_verb_only(files: tuple[Path, Path]) -> None:
    files[0].write_text(
        'profile = ["block", "mutex"]\n[top]\ninterval = "5s"\n[attach]\nquiet = true\n'
    )
    assert found("attach") == {"kinds": ["block", "mutex"], "is_quiet": True}
    assert found("list") == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[attach]\nduratoin = 5\n",
            "line 2: attach has no option duratoin. Did you mean duration?",
        ),
        ("\nhertz = 5\n", "line 2: No verb has the option hertz."),
        ("[atach]\n", "line 1: There is no verb [atach]. Did you mean attach?"),
        ("duration = -1\n", "line 1: --duration: '-1' is too short: it must be more than 0."),
        ("duration = true\n", "line 1: --duration: This is neither text nor a number."),
        ("duration = [1, 2]\n", "line 1: --duration: This takes one value."),
        ("pid = 7\n", "line 1: No verb has the option pid that has a default."),
        ("duration = \n", "is no TOML: Invalid value"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(
    files: tuple[Path, Path], text: str, sentence: str
) -> None:
    files[0].write_text(text)
    said = refused()
    assert said.startswith(str(files[0]))
    assert sentence in said


def test_a_wrong_variable_is_named(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EBPFPROF_PROFILE", "blok")
    assert refused().startswith("The variable EBPFPROF_PROFILE: --profile: 'blok' is none of ")


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_does_not_count(files: tuple[Path, Path], mode: int) -> None:
    files[1].write_text("duration = 5\n")
    files[1].chmod(mode)
    assert "others may write to it" in refused()


def test_a_file_of_somebody_else_a_link_and_a_pipe_do_not_count(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system, user = files
    user.write_text("duration = 5\n")
    system.symlink_to(user)
    assert "can't be opened" in refused()
    system.unlink()
    os.mkfifo(system, 0o600)
    assert "it is no regular file" in refused()
    system.unlink()
    monkeypatch.setattr(module, "_files", lambda: iter([(user, (ME + 1,))]))
    assert "others may write to it" in refused()


def test_a_huge_file_is_refused(files: tuple[Path, Path]) -> None:
    files[0].write_text("#" * (1 << 17))
    assert "larger than 64 KiB" in refused()
