"""The options of the verbs that record for as long as they run: top and serve."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.commands.serve import shared_with_traces
from ebpfprof.profilers.options import Options
from ebpfprof.server.trace_child import TraceSettings


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            ["top", "--interval", "1 second"],
            'a time from 100ms to 1h, such as "100ms", not "1 second".',
        ),
        (["top", "--interval", "50ms"], 'a time from 100ms to 1h, such as "100ms", not "50ms".'),
        (
            ["top", "--interval", "2h"],
            '--interval must be a time from 100ms to 1h, such as "100ms", not "2h".',
        ),
        (
            ["top", "--duration", "inf"],
            '--duration must be a time of more than 0, such as "10s", not "inf".',
        ),
        (
            ["serve", "--window", "500ms"],
            '--window must be a time from 1s to 1h, such as "1s", not "500ms".',
        ),
        (["serve", "--window", "nan"], 'a time from 1s to 1h, such as "1s", not "nan".'),
        (
            ["serve", "--retention", "5s"],
            '--retention must be a time from 10s to 1d, such as "10s", not "5s".',
        ),
        (["serve", "--retention", "25h"], 'a time from 10s to 1d, such as "10s", not "25h".'),
        (
            ["serve", "--token", "atuo"],
            '--token must be one of auto, not "atuo". Did you mean auto?',
        ),
    ],
)
def test_a_wrong_value_gets_a_sentence(given: list[str], reason: str) -> None:
    result = CliRunner().invoke(cli, [*given, "--pid", "1"])
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


def test_serve_names_processes_as_the_other_verbs_do() -> None:
    messages = [CliRunner().invoke(cli, [verb]).output for verb in ("serve", "attach")]
    assert all("Choose processes: PID, --name NAME" in text for text in messages)


@pytest.mark.parametrize(("last_s", "each"), [(None, 3.0), (5.0, 1.5)])
def test_last_seconds_get_half_of_the_overhead(last_s: float | None, each: float) -> None:
    options, traces = shared_with_traces(Options(max_overhead=3.0, allow_unknown_go=True), last_s)
    assert (options.max_overhead, traces) == (each, TraceSettings(last_s, each, True))
