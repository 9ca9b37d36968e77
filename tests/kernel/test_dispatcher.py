"""One link and one process for all probes of a recording, whatever functions they run."""

from __future__ import annotations

import os
from time import monotonic, sleep

import pytest

from ebpfprof.kernel import uprobe_links
from ebpfprof.kernel.probe_holders import NAME
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.kernel.kernel_state import helpers, holders
from tests.kernel.programs import program
from tests.kernel.windowed_runs import values_below
from tests.targets_run import DEADLINE_S, Target

HANDS = 20


def holding() -> list[int]:
    """The processes that hold probes."""
    return [holder for holder in holders(os.getpid()) if holder not in helpers(os.getpid())]


def test_one_process_holds_the_probes_of_several_functions() -> None:
    assert uprobe_links.is_offered(), f"Linux 6.10 is needed: perf events have several {NAME}"
    with (
        Target.start(program("steps")) as target,
        Session([target.pid], Options(kinds=("block", "mutex"))) as session,
    ):
        session.start()
        assert len(holding()) == 1
        for _ in range(HANDS):
            target.ask("hand", "done")
        (report,) = session.finish()
    # Both functions of a wait ran, at its begin and at its end.
    assert values_below(report.profiles[0], "hand")[0] == 11 * HANDS


@pytest.mark.full
def test_a_window_takes_one_process() -> None:
    """Also for the probes where goroutines begin to run. The two others have anchors: that of the
    probes of every wait, and that of the windows'."""
    options = Options(kinds=("block", "mutex"), max_overhead=2)
    most, until_s = 0, monotonic() + DEADLINE_S
    with (
        Target.start(program("pingpong"), "-sends=1000000000") as target,
        Session([target.pid], options) as session,
    ):
        session.start()
        target.say("go")
        seen = set[int]()
        while len(seen) < 5:  # windows, and before them the record of every wait
            assert monotonic() < until_s, "there are no windows"
            now = holding()
            seen.update(now)
            most = max(most, len(now))
            sleep(0.002)  # polls, as nothing signals a window
        target.kill()
    assert most <= 3
