"""The values that the command line understands, and what it says of others."""

from __future__ import annotations

import os

import click
import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.commands.parameter_types import PID, OneOf, Typed, duration
from ebpfprof.commands.target_options import target_options
from ebpfprof.profilers.registry import kinds_to_choose
from ebpfprof.settings.values import NumberValue
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
        ("2d", 172800),
        (7, 7),
    ],
)
def test_durations_are_read_as_go_writes_them(typed: object, seconds: float) -> None:
    assert duration().convert(typed, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("typed", ["", "x", "10 s", "s", "d", "1m-2s", "nan", "inf", "1e999", "."])
def test_what_is_not_a_duration_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match=r'^must be a time of more than 0, such as "10s"'):
        duration().convert(typed, None, None)


@pytest.mark.parametrize(
    ("kind", "typed", "said"),
    [
        (duration(), "0", 'a time of more than 0, such as "10s", not "0"'),
        (duration(), "-3", 'a time .*, not "-3"'),
        (duration(0.1), "99ms", 'a time of at least 100ms, such as "100ms", not "99ms"'),
        (duration(0.1, 60), "61s", 'a time from 100ms to 1m, such as "100ms", not "61s"'),
        (duration(most_s=3600), "2h", 'a time of more than 0 and at most 1h, such as "10s"'),
        (Typed(NumberValue(1, 999)), "1.5", 'a whole number from 1 to 999, not "1.5"'),
        (
            Typed(NumberValue(1, (1 << 47) - 1)),
            "0",
            "a whole number from 1 to 140737488355327, not 0",
        ),
        (Typed(NumberValue(0, 100, is_fraction=True)), "nan", "a number from 0 to 100, not NaN"),
        (Typed(PID), "shop", 'a process id, .*, not "shop"'),
        (Typed(PID), "0", 'a process id, .*, not "0"'),
        (Typed(PID), "9" * 5000, "a process id, .*, not "),
        (Typed(PID), "\x1b[2J", r'a process id, .*, not "\\u001b\[2J"'),
        (OneOf(["html", "json"]), "htm", 'one of html, json, not "htm". Did you mean html?'),
        (OneOf(["html", "json"]), "xyz", 'one of html, json, not "xyz"$'),
    ],
)
def test_errors_say_what_is_right(kind: click.ParamType[object], typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=f"^must be {said}"):
        kind.convert(typed, None, None)


def test_a_dump_may_sample_twice_without_a_pause() -> None:
    assert duration(may_be_0=True).convert("0", None, None) == 0


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
