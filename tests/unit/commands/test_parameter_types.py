"""The values that the command line understands, and what it says of others."""

from __future__ import annotations

import os

import click
import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.commands.parameter_types import Duration, Number, OneOf, Pid
from ebpfprof.commands.target_options import target_options
from ebpfprof.profilers.registry import kinds_to_choose
from tests.unit.commands.test_recording_options import options_of, recorded


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("10", 10),
        ("2.5", 2.5),
        ("10s", 10),
        ("500ms", 0.5),
        ("1m", 60),
        ("1m30s", 90),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("2us", 2e-6),
        ("2\u00b5s", 2e-6),
        ("2\u03bcs", 2e-6),
        ("3ns", 3e-9),
        (7, 7),
    ],
)
def test_durations_are_read_as_go_writes_them(typed: object, seconds: float) -> None:
    assert Duration().convert(typed, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("typed", ["", "x", "10 s", "s", "1d", "1m-2s", "nan", "inf", "1e999", "."])
def test_what_is_no_duration_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no length of time\. Write it as Go does"):
        Duration().convert(typed, None, None)


@pytest.mark.parametrize(
    ("kind", "typed", "said"),
    [
        (Duration(), "0", "'0' is too short: it must be more than 0."),
        (Duration(), "-3", "'-3' is too short"),
        (Duration(0.1), "99ms", "'99ms' is less than 0.1 s."),
        (Duration(0.1, 60), "61s", "'61s' is more than 60 s."),
        (Number(1, 999), "1.5", "'1.5' is no whole number from 1 to 999."),
        (Number(1, (1 << 47) - 1), "0", "from 1 to 140737488355327."),
        (Number(0, 100, is_fraction=True), "nan", "'nan' is no number from 0 to 100."),
        (Pid(), "shop", "'shop' is not the id of a process"),
        (Pid(), "0", "'0' is not the id of a process"),
        (Pid(), "9" * 5000, "is not the id of a process"),
        (Pid(), "\x1b[2J", r"'\\x1b\[2J' is not the id"),
        (OneOf(["html", "json"]), "htm", "'htm' is none of html, json. Did you mean html?"),
        (OneOf(["html", "json"]), "xyz", "'xyz' is none of html, json.$"),
    ],
)
def test_errors_say_what_is_right(kind: click.ParamType[object], typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        kind.convert(typed, None, None)


def test_a_dump_may_look_twice_without_a_pause() -> None:
    assert Duration(may_be_0=True).convert("0", None, None) == 0


def test_a_mistyped_verb_gets_a_suggestion() -> None:
    refused = CliRunner().invoke(cli, ["atach", "1"])
    assert refused.exit_code == 2
    assert "There is no verb 'atach'. Did you mean attach?" in refused.output
    assert "Did you mean" not in CliRunner().invoke(cli, ["xyz"]).output


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_has_a_short_option(option: str) -> None:
    shown = CliRunner().invoke(cli, [option])
    assert shown.exit_code == 0
    assert shown.output.startswith("ebpfprof, version ")


def pids_of(*given: str) -> list[int]:
    """The pids that a verb gets."""
    seen: list[int] = []

    @click.command()
    @target_options()
    def verb(pids: list[int]) -> None:
        seen.extend(pids)

    result = CliRunner().invoke(verb, given)
    assert result.exit_code == 0, result.output
    return seen


def test_pids_need_no_option() -> None:
    pids = [os.getpid(), os.getppid(), 1]
    one, two, three = map(str, pids)
    assert pids_of(one) == pids[:1]
    assert pids_of(one, f"{two},{three}") == pids
    assert pids_of(one, "--pid", two, one, "-p", f"{three},{one}") == pids


def test_all_stands_for_every_kind_that_the_program_can_have() -> None:
    options = options_of(["--profile", "all"])
    assert options.kinds == tuple(kind.name for kind in kinds_to_choose())
    assert options.takes_any_program
    assert not options_of(["--profile", ",".join(options.kinds)]).takes_any_program
    _, refused = recorded(["--profile", "al"])
    assert "Did you mean all?" in refused.output
