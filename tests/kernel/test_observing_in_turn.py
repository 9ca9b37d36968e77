"""Observations one after the other, beside a recording of the same process."""

from __future__ import annotations

import os

import pytest

from ebpfprof.errors import NoSuchProcess, NotGoProgram
from ebpfprof.goruntime.open_processes import OpenOptions
from ebpfprof.observing.observer import observation_options
from ebpfprof.observing.repeated import RepeatedObserver
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from tests.kernel.kernel_state import bpf_objects, open_files
from tests.kernel.live_counts import HANDS, counts
from tests.kernel.programs import program
from tests.targets_run import Target

SECONDS = 0.3
LEADS = 5


def test_one_session_observes_processes_in_turn_and_disturbs_no_recording() -> None:
    options = observation_options(OpenOptions())
    with (
        Target.start(program("steps")) as steps,
        Target.start(program("steps")) as other,
        LiveSession(Options(kinds=("block",))) as live,
    ):
        recorded = live.add(steps.pid)
        live.start(recorded)
        before = bpf_objects(os.getpid())
        opened: list[LiveSession] = []

        def open_live() -> LiveSession:
            opened.append(LiveSession(options, capacity=1, processes=live.processes))
            return opened[-1]

        with RepeatedObserver(open_live) as observer:
            for target in (steps, other, steps):
                evidence = observer.observe(target.pid, SECONDS, lambda _: False)
                assert evidence.program.pid == target.pid
                assert evidence.length_ns >= SECONDS * 1e9
                assert evidence.wall.samples
                for dump in evidence.dumps:
                    assert len(dump.leads_ns) == LEADS
                    assert list(dump.leads_ns) == sorted(dump.leads_ns)
            with pytest.raises(NotGoProgram):
                observer.observe(os.getpid(), SECONDS, lambda _: False)
            stopped = observer.observe(steps.pid, 60.0, lambda gone_s: gone_s > 0)
            assert stopped.length_ns < 60e9
            other.kill()
            with pytest.raises(NoSuchProcess):
                observer.observe(other.pid, SECONDS, lambda _: False)
            assert len(opened) == 1
            assert bpf_objects(os.getpid()) > before
        assert bpf_objects(os.getpid()) == before
        steps.ask("hand", "done")
        live.stop(recorded)
        assert counts(live, recorded, "main.hand")["block"] == HANDS


def test_a_process_that_is_recorded_and_observed_is_open_once() -> None:
    options = observation_options(OpenOptions())
    with Target.start(program("steps")) as steps, LiveSession(Options(kinds=("block",))) as live:
        live.add(steps.pid)
        with LiveSession(options, capacity=1, processes=live.processes) as second:
            before = sum("mem" in file or "pidfd" in file for file in open_files(os.getpid()))
            second.add(steps.pid)
            after = sum("mem" in file or "pidfd" in file for file in open_files(os.getpid()))
        assert after == before
        live.add(steps.pid)  # the other session has not closed it
