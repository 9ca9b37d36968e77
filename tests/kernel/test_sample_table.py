"""More distinct CPU stacks than the kernel's table has room for."""

from __future__ import annotations

import gc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.overhead.process_budget import ProcessBudget
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Label
from ebpfprof.profilers import labels
from ebpfprof.profilers.cpu import sample_table
from ebpfprof.profilers.cpu.cpu_program import CpuConfig
from ebpfprof.profilers.cpu.cpu_recording import CpuProfiler
from ebpfprof.profilers.cpu.sample_table import CpuStack, rows_for
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.recording import OpenedProcess
from ebpfprof.recording.live import LiveSession
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

pytestmark = pytest.mark.alone

ROWS = 512
HZ = 999
WAYS = 3000
SETS = 2048
TURNS = 15  # tests/targets/manystacks


@dataclass(frozen=True)
class Burnt:
    """The samples of a program: the sums of a reading from the beginning and of one that began
    half way; how many samples there were; what was lost.
    """

    go: GoTarget
    whole: Counter[CpuStack]
    rest: Counter[CpuStack]
    count: int
    lost: list[Loss]


def burnt(held: ExitStack, what: str, ways: int, *keys: str) -> Burnt:
    """Of a program that goes so many ways; with the labels that have these keys, or all."""
    target = held.enter_context(Target.start(program("manystacks")))
    process = held.enter_context(Process(target.pid))
    go = inspect(process)
    held.enter_context(go.binary.elf)
    config = CpuConfig(hz=HZ, kernel=False, label_keys=labels.key_hashes(keys or None))
    sampling = held.enter_context(CpuProfiler(1, config))
    sampling.load()
    recording = sampling.record(OpenedProcess(process, go, held, ProcessBudget(0.0)), 0)
    sums = [recording.sums().samples]
    recording.start()
    for _ in range(2):
        with ThreadPoolExecutor(1) as asking:
            answer = asking.submit(target.ask, f"{what} {ways // 2}", "done")
            while not answer.done():
                sampling.poll()
            answer.result()
        sampling.poll()
        sums.append(recording.sums().samples)
    recording.end(0)
    sampling.detach()
    assert sampling.failures() == []
    end = recording.sums().samples
    whole, rest, _ = (end - each for each in sums)
    return Burnt(go, whole, rest, recording.cost().samples.count, list(recording.losses()))


def test_a_small_sample_table_loses_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_table, "LEAST_ROWS", ROWS)
    monkeypatch.setattr(sample_table, "ROOM_S", 0)
    with ExitStack() as held:
        found = burnt(held, "burn", WAYS)
    assert found.lost == []
    assert found.whole.total() == found.count
    assert len(found.whole) > 2 * ROWS
    assert 0.3 * found.count < found.rest.total() < 0.7 * found.count
    assert found.rest <= found.whole


def test_samples_without_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_table, "LEAST_ROWS", ROWS)
    monkeypatch.setattr(sample_table, "ROOM_S", 0)
    monkeypatch.setattr(sample_table, "MAX_STACKS", 100)
    with ExitStack() as held:
        found = burnt(held, "burn", WAYS)
    (loss,) = found.lost
    assert loss.name == "samples_full"
    assert 100 < len(found.whole) <= 100 + ROWS  # what lies in the table still is there
    missing = found.count - found.whole.total()
    assert missing <= loss.count <= 3 * missing


def way_of(calls: list[str]) -> int | None:
    """Which way the program was at the end of, by its functions; None if it was elsewhere."""
    turns = [name == "main.goRight" for name in calls if name in ("main.goLeft", "main.goRight")]
    if calls[:1] != ["main.burn"] or len(turns) != TURNS:
        return None
    return sum(is_right << place for place, is_right in enumerate(turns))


@pytest.mark.full
def test_label_sets_are_deleted_with_their_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample has the labels of its request: sets are deleted with their samples."""
    monkeypatch.setattr(labels, "MAX_LABEL_SETS", SETS)
    with ExitStack() as held:
        found = burnt(held, "label", 10_000)
        bias, seen = found.go.load_bias, set[tuple[Label, ...]]()
        pcs = {pc - 1 - bias for stack in found.whole for pc in stack.pcs}
        frames = found.go.binary.frames_many(pcs)
    assert found.lost == []
    for stack in found.whole:
        calls = [frame.function for pc in stack.pcs for frame in frames.get(pc - 1 - bias, ())]
        way = way_of(calls)
        if way is not None:
            assert stack.labels == (Label("way", str(way)), Label("work", "burn"))
            seen.add(stack.labels)
    assert len(seen) > SETS


@pytest.mark.full
def test_labels_that_are_not_selected_use_no_map_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABEL_SETS", 4)
    with ExitStack() as held:
        found = burnt(held, "label", 1000, "work")
    assert found.lost == []
    seen = Counter[tuple[Label, ...]]()
    for stack, count in found.whole.items():
        seen[stack.labels] += count
    assert set(seen) <= {(), (Label("work", "burn"),)}
    assert seen[Label("work", "burn"),] > found.count / 2


def cpu_stacks() -> int:
    """How many of them this process holds."""
    # Not isinstance(): a proxy of what another test has left asks that, which is gone.
    return sum(type(value) is CpuStack for value in gc.get_objects())


@pytest.mark.full
def test_samples_without_a_reading_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_table, "LEAST_ROWS", ROWS)
    monkeypatch.setattr(sample_table, "ROOM_S", 0)
    gc.collect()  # what other tests have left
    before = cpu_stacks()
    largest, count = 0, 0
    with (
        LiveSession(Options(kinds=("cpu",), hz=HZ), capacity=1) as live,
        Target.start(program("manystacks")) as burning,
    ):
        target = live.add(burning.pid)
        since = live.start(target)
        while count <= 3 * (largest + ROWS):
            burning.ask("burn 1000", "done")
            now = live.sums(target)
            (profile,) = live.report(now, since).profiles
            since = now
            largest = max(largest, len(profile.samples))
            count += len(profile.samples)
        live.stop(target)  # gc.get_objects() must not meet a tuple that another thread makes
        del now, since
        kept = cpu_stacks() - before
    assert kept <= largest + ROWS


def test_the_sample_table_holds_some_seconds_of_all_processors() -> None:
    assert rows_for(99, 2) >= 99 * 2 * 4
    assert rows_for(99, 64) >= 99 * 64 * 4
    assert rows_for(99, 64) < rows_for(999, 512) <= 1 << 15
