"""When windows are recorded and when not; tests/kernel/test_max_overhead.py has the whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast
from unittest import mock

import pytest

from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.overhead.cost import Cost, Runs
from ebpfprof.overhead.process_budget import Lease, ProcessBudget
from ebpfprof.overhead.slowdown import ActivityEstimator
from ebpfprof.profilers.spending import Spending
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.wait_recording import _TURN_EACH_NS, WaitsProfiler, WaitsRecording
from ebpfprof.profilers.waits.window_seeds import WindowSeeds
from ebpfprof.profilers.waits.windows import Windows, _Window
from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis.cgo_callback import cgo_callback
from symbolizer.codeanalysis.park_sites import probe_sites
from tests.images.target import SavedTarget, Shown
from tests.programs import saved

SOON_NS = 3_600_000_000_000


class Notes:
    """Notes which of its methods are called; no goroutine waits."""

    hit_ns = None

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.tables = self

    def __getattr__(self, name: str) -> object:
        def call(*_: object) -> dict[object, object]:
            self.calls.append(name)
            return {}

        return call

    def times_run(self) -> int:
        return 0

    def runs(self, index: int) -> Runs:
        return Runs(0, 0.0)


def lease() -> Lease:
    """One percent, of one that has spent nothing."""
    return ProcessBudget(1.0).lease(Cost)


@pytest.mark.parametrize("lead_ns", [-1, SOON_NS])
def test_sums_of_a_window_prepared_too_late_are_discarded(
    lead_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeds were not complete in time."""
    waits, scanner = Notes(), Notes()
    go = mock.MagicMock()
    go.target.cpu_ns.return_value = 1
    watch = Windows(cast("WaitsCollector", waits), 0, cast("GoTarget", go), lease())
    monkeypatch.setattr(
        "ebpfprof.profilers.waits.window_seeds.ParkedScanner", lambda *_, **__: scanner
    )
    collector, process = cast("WaitsCollector", waits), cast("GoTarget", go)
    watch._seeds = WindowSeeds(collector, 0, process)
    watch._spending = Spending(collector, 0, process, lease())
    watch._lead_ns = lead_ns

    prepared = ["attach_probes", "open_window"]
    with ThreadPoolExecutor(max_workers=1) as pool:  # a thread that is urgent then
        is_prepared = pool.submit(watch._prepare, 1_000_000).result()
    if is_prepared:
        assert lead_ns == SOON_NS
        assert waits.calls == prepared
    else:
        assert lead_ns == -1
        assert waits.calls == [*prepared, "close_window", "take"]


def test_a_window_has_ended_when_its_target_was_gone() -> None:
    """Its number may be that of another target next: nothing is written for it any more."""
    waits, go, seeds = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
    go.target.cpu_ns.return_value = 1
    waits.runs.return_value, waits.hit_ns = Runs(), None
    seeds.ongoing.side_effect = TargetGone("It has ended.")
    watch = Windows(cast("WaitsCollector", waits), 0, cast("GoTarget", go), lease())
    watch._seeds = cast("WindowSeeds", seeds)
    watch._spending = Spending(cast("WaitsCollector", waits), 0, cast("GoTarget", go), lease())
    watch._activity = ActivityEstimator()
    seeds.times_run.return_value = 0
    watch._counters = watch._read_counters()
    watch._window = _Window(0, 1, 0, 0.0, watch._counters)
    with pytest.raises(TargetGone):
        watch._close()
    waits.begin_closing.return_value.result.assert_called_once_with()


def without_goroutine_list() -> GoTarget:
    """A process whose program has no code that loads runtime.allgs."""
    (loads,) = saved.binary("frames").functions_named("runtime.forEachG")
    at = saved.binary("frames").elf.vaddr_to_offset(loads.entry)
    data = bytearray(saved.program("frames"))
    data[at : at + loads.end - loads.entry] = b"\x90" * (loads.end - loads.entry)
    binary = GoBinary.open(ElfFile.from_bytes(bytes(data)))
    target = SavedTarget(Shown("/usr/bin/frames"))
    return GoTarget(target, binary, 0, (), probe_sites(binary), cgo_callback(binary), None, None)


def test_a_program_without_a_goroutine_list_is_refused() -> None:
    watch = Windows(cast("WaitsCollector", Notes()), 0, without_goroutine_list(), lease())
    with pytest.raises(AttachFailed, match=r"runtime\.forEachG does not load.*--max-overhead 0"):
        watch.start()


def test_turns_are_as_long_as_targets_that_take_them_need() -> None:
    """Not those that are recorded whole, nor those that are so again after windows."""
    states = (True, False), (True, True), (False, True)
    profiler = WaitsProfiler.__new__(WaitsProfiler)
    profiler._recordings = [WaitsRecording.__new__(WaitsRecording) for _ in states]
    for recording, (has_paused, is_open) in zip(profiler._recordings, states, strict=True):
        recording._windows = mock.MagicMock(has_paused=has_paused, is_open=is_open)
    assert profiler.least_turn_ns() == _TURN_EACH_NS
