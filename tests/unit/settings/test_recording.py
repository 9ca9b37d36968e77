"""Settings that the command line and the agent share: what the README promises of them."""

from __future__ import annotations

import pytest

from ebpfprof.settings import recording


def test_by_default_one_percent_is_allowed_and_nothing_is_assumed() -> None:
    assert recording.MAX_OVERHEAD.default == 1
    assert not recording.BY_HANDLER.default
    assert not recording.ALLOW_UNKNOWN_GO.default


@pytest.mark.parametrize("percent", [0, 0.5, 100])
def test_the_overhead_is_a_part_of_the_cpu_time(percent: float) -> None:
    value = recording.MAX_OVERHEAD.value
    assert value.parse(str(percent)) == percent
    for wrong in ("-1", "100.5", "nan"):
        with pytest.raises(ValueError, match="must be a number from 0 to 100"):
            value.parse(wrong)


def test_an_agent_that_runs_keeps_how_it_records() -> None:
    shared = (
        recording.MAX_OVERHEAD,
        recording.BY_HANDLER,
        recording.ALLOW_UNKNOWN_GO,
        recording.RUNTIME,
    )
    assert not any(setting.is_live for setting in shared)
