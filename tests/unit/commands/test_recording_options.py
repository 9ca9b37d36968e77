"""Each verb offers the recording options that it uses."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from ebpfprof.commands.cli import cli
from ebpfprof.commands.recording_options import RecordingCommand
from ebpfprof.profilers.options import Options


@pytest.mark.parametrize(
    ("verb", "missing"),
    [("attach", []), ("run", []), ("top", ["--open"]), ("serve", ["--by-lock", "--open"])],
)
def test_each_verb_offers_only_its_own_options(verb: str, missing: list[str]) -> None:
    shown = CliRunner().invoke(cli, [verb, "--help-all"]).output
    offered = {each for each in ("--by-lock", "--open", "--hz", "--lock-labels") if each in shown}
    assert offered == {"--by-lock", "--open", "--hz", "--lock-labels"} - set(missing)
    for option in missing:
        refused = CliRunner().invoke(cli, [verb, "--pid", "1", option])
        assert refused.exit_code == 2
        assert f"No such option '{option}'" in refused.output


def recorded(given: list[str]) -> tuple[list[Options], Result]:
    """What a verb gets for this command line, and what click says."""
    seen: list[Options] = []

    @click.command(cls=RecordingCommand)
    def verb(options: Options) -> None:
        seen.append(options)

    return seen, CliRunner().invoke(verb, given)


def options_of(given: list[str]) -> Options:
    """The options of a command line that is right."""
    (options,), result = recorded(given)
    assert result.exit_code == 0
    return options


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
def test_the_options_choose_bound_and_block_rate(
    given: list[str], max_overhead: float, block_rate_ns: int
) -> None:
    options = options_of(given)
    assert (options.max_overhead, options["block_rate_ns"]) == (max_overhead, block_rate_ns)


def test_bound_and_block_rate_together_are_refused() -> None:
    options = ["--block-rate", "1000", "--max-overhead", "1"]
    refused = CliRunner().invoke(cli, ["attach", "--pid", "1", *options])
    assert refused.exit_code == 2
    assert "choose one" in refused.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--profile", "block", "--hz", "9"],
            "--hz needs the cpu profile, which is not recorded: add --profile block,cpu.",
        ),
        (["--profile", "mutex", "--no-kernel"], "--no-kernel needs the cpu profile"),
        (["--profile", "cpu", "--by-lock"], "--by-lock needs the mutex profile"),
        (
            ["--profile", "cpu,mutex", "--block-rate", "9"],
            "--block-rate needs the block profile",
        ),
    ],
)
def test_options_of_a_kind_that_is_not_recorded_are_refused(given: list[str], said: str) -> None:
    seen, result = recorded(given)
    assert (seen, result.exit_code) == ([], 2)
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (["--wakers"], ("block", "mutex", "cpu", "wakers")),
        (["--wakers", "--profile", "block"], ("block", "wakers")),
        (["--wakers", "--profile", "wakers"], ("wakers",)),
        (["--profile", "cpu,wakers"], ("cpu", "wakers")),
    ],
)
def test_wakers_are_added_to_what_is_recorded(given: list[str], kinds: tuple[str, ...]) -> None:
    options = options_of(given)
    assert options.kinds == kinds
    assert options.kinds_given == ("--profile" in given)


def test_open_waits_need_no_certain_kind() -> None:
    assert options_of(["--profile", "mutex", "--open"])["open_waits"]


@pytest.mark.usefixtures("made_up")
def test_the_command_line_has_the_options_of_every_kind() -> None:
    _, result = recorded(["--help-all"])
    shown = " ".join(result.output.split())
    known = "wakers, runqueue, cpu, wall, goroutine, heap, allocs, threads, threadcreate"
    assert f"Profiles to record: block, mutex, {known}, mallocs, crowd. all: " in shown
    assert "--alloc-bytes BYTES Sample one allocation in BYTES. [default: 512]" in (shown)
    assert "--stacks / --no-stacks" in shown
    assert shown.index("--no-kernel") < shown.index("--alloc-bytes") < shown.index("--max-overhead")

    options = options_of(["--profile", "mallocs", "--alloc-bytes", "9", "--no-stacks"])
    assert (options.kinds, options.kinds_given) == (("mallocs",), True)
    assert (options["alloc_bytes"], options["with_stacks"]) == (9, False)
    assert options.max_overhead == 0.0
    assert options.sampling("mallocs") == "one in 9 bytes"


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--profile", "block", "--no-stacks"], "--no-stacks needs the mallocs profile"),
        (
            ["--alloc-bytes", "9", "--max-overhead", "2"],
            "--alloc-bytes and --max-overhead both say which allocations to record: choose one.",
        ),
    ],
)
def test_options_of_every_kind_are_checked(given: list[str], said: str) -> None:
    seen, result = recorded(given)
    assert (seen, result.exit_code) == ([], 2)
    assert said in " ".join(result.output.split())
