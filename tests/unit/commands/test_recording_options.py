"""Each verb offers the recording options that it can do something with."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.commands.recording_options import recording_options
from ebpfprof.profilers.options import Options


@pytest.mark.parametrize(
    ("verb", "missing"),
    [("attach", []), ("run", []), ("top", ["--open"]), ("serve", ["--by-lock", "--open"])],
)
def test_only_what_the_verb_can_do_is_offered(verb: str, missing: list[str]) -> None:
    shown = CliRunner().invoke(cli, [verb, "--help"]).output
    offered = {each for each in ("--by-lock", "--open", "--hz", "--lock-labels") if each in shown}
    assert offered == {"--by-lock", "--open", "--hz", "--lock-labels"} - set(missing)
    for option in missing:
        refused = CliRunner().invoke(cli, [verb, "--pid", "1", option])
        assert refused.exit_code == 2
        assert f"No such option '{option}'" in refused.output


@pytest.mark.parametrize(
    ("given", "max_overhead", "block_rate_ns"),
    [
        ([], 1, 1),
        (["--max-overhead", "3"], 3, 1),
        (["--max-overhead", "0"], 0, 1),
        (["--block-rate", "1"], 0, 1),
        (["--block-rate", "1000"], 0, 1000),
        (["--block-rate", "1000", "--max-overhead", "0"], 0, 1000),
    ],
)
def test_which_waits_are_taken_is_said_in_one_way(
    given: list[str], max_overhead: float, block_rate_ns: int
) -> None:
    seen: list[Options] = []

    @click.command()
    @recording_options()
    def verb(options: Options) -> None:
        seen.append(options)

    assert CliRunner().invoke(verb, given).exit_code == 0
    assert (seen[0].max_overhead, seen[0].block_rate_ns) == (max_overhead, block_rate_ns)


def test_two_ways_at_once_are_refused() -> None:
    options = ["--block-rate", "1000", "--max-overhead", "1"]
    refused = CliRunner().invoke(cli, ["attach", "--pid", "1", *options])
    assert refused.exit_code == 2
    assert "choose one" in refused.output
