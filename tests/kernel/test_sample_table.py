"""More distinct CPU stacks than the kernel's table has room for."""

from __future__ import annotations

import gc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from ebpfprof.collectors import sampletable
from ebpfprof.collectors.cpu import CpuCollector, CpuRecipe
from ebpfprof.collectors.sampletable import CpuStack, rows_for
from ebpfprof.gotarget import inspect
from ebpfprof.live import LiveSession
from ebpfprof.losses import Loss
from ebpfprof.objects import Objects
from ebpfprof.options import Options
from ebpfprof.target import Target as Process
from tests.kernel.programs import program
from tests.targets_run import Target

pytestmark = pytest.mark.alone

ROWS = 1024
HZ = 999
WAYS = 5000


def burnt(held: ExitStack, ways: int) -> tuple[list[Counter[CpuStack]], int, list[Loss]]:
    """The samples of a program that goes so many ways: the sums of one who was there from the
    beginning and of one who came half way; how many samples there were; what was lost.
    """
    target = held.enter_context(Target.start(program("manystacks")))
    process = held.enter_context(Process(target.pid))
    go = inspect(process)
    held.enter_context(go.binary.elf)
    objects = held.enter_context(Objects(process))
    collector = held.enter_context(CpuCollector(1, CpuRecipe(hz=HZ, kernel=False)))
    collector.load()
    collector.attach(0, process, objects, go)
    sums = [collector.begin_sums(0)]
    collector.start()
    for _ in range(2):
        with ThreadPoolExecutor(1) as asking:
            answer = asking.submit(target.ask, f"burn {ways // 2}", "done")
            while not answer.done():
                collector.poll()
            answer.result()
        collector.poll()
        sums.append(collector.begin_sums(0))
    collector.stop()
    collector.detach()
    assert collector.failure is None
    found = [Counter(collector.read_sums(each)) for each in sums[:2]]
    return found, collector.runs(0).count, list(collector.losses())


def test_a_table_that_is_small_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampletable, "_LEAST_ROWS", ROWS)
    monkeypatch.setattr(sampletable, "_ROOM_S", 0)
    with ExitStack() as held:
        (whole, rest), count, lost = burnt(held, WAYS)
    assert lost == []
    assert whole.total() == count
    assert len(whole) > 2 * ROWS
    assert 0.3 * count < rest.total() < 0.7 * count
    assert rest <= whole


def test_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampletable, "_LEAST_ROWS", ROWS)
    monkeypatch.setattr(sampletable, "_ROOM_S", 0)
    monkeypatch.setattr(sampletable, "_MAX_STACKS", 100)
    with ExitStack() as held:
        (whole, _), count, lost = burnt(held, WAYS)
    (loss,) = lost
    assert loss.name == "samples_full"
    assert 100 < len(whole) <= 100 + ROWS  # what lies in the table still is there
    assert count - whole.total() <= loss.count <= 3 * (count - whole.total())


def test_what_nobody_asks_for_any_more_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampletable, "_LEAST_ROWS", ROWS)
    monkeypatch.setattr(sampletable, "_ROOM_S", 0)
    monkeypatch.setattr(sampletable, "_MAX_KNOWN", 0)
    largest, count = 0, 0
    with (
        LiveSession(Options(kinds=("cpu",), hz=HZ), capacity=1) as live,
        Target.start(program("manystacks")) as burning,
    ):
        target = live.add(burning.pid)
        samples = live.begin_samples(target)
        assert samples
        live.start(target)
        while count <= 3 * (largest + ROWS):
            burning.ask("burn 1000", "done")
            (profile,) = live.sampled(target, samples, restart=True).profiles
            largest = max(largest, len(profile.samples))
            count += len(profile.samples)
        kept = sum(isinstance(each, CpuStack) for each in gc.get_objects())
    assert kept <= largest + ROWS


def test_a_table_has_room_for_some_seconds_of_all_processors() -> None:
    assert rows_for(99, 2) >= 99 * 2 * 4
    assert rows_for(99, 64) >= 99 * 64 * 4
    assert rows_for(99, 64) < rows_for(999, 512) <= 1 << 15
