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
        (["top", "--interval", "1 second"], "'1 second' is no length of time."),
        (["top", "--interval", "50ms"], "'50ms' is less than 0.1 s."),
        (["top", "--interval", "2h"], "'2h' is more than 3600 s."),
        (["top", "--duration", "inf"], "'inf' is no length of time."),
        (["serve", "--window", "500ms"], "'500ms' is less than 1 s."),
        (["serve", "--window", "nan"], "'nan' is no length of time."),
        (["serve", "--retention", "5s"], "'5s' is less than 10 s."),
        (["serve", "--retention", "25h"], "'25h' is more than 86400 s."),
        (["serve", "--token", "atuo"], "'atuo' is none of auto. Did you mean auto?"),
    ],
)
def test_a_wrong_value_gets_a_sentence(given: list[str], reason: str) -> None:
    result = CliRunner().invoke(cli, [*given, "--pid", "1"])
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


def test_serve_names_processes_as_the_other_verbs_do() -> None:
    said = [CliRunner().invoke(cli, [verb]).output for verb in ("serve", "attach")]
    assert all("Name the processes: PID, --name NAME" in each for each in said)


@pytest.mark.parametrize(("last_s", "each"), [(None, 3.0), (5.0, 1.5)])
def test_last_seconds_get_half_of_the_overhead(last_s: float | None, each: float) -> None:
    options, traces = shared_with_traces(Options(max_overhead=3.0, allow_unknown_go=True), last_s)
    assert (options.max_overhead, traces) == (each, TraceSettings(last_s, each, True))
