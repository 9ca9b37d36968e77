"""Samplers where processors go offline and online, and the list of online processors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import AttachFailed, KernelUnsupported
from ebpfprof.kernel import perf_events
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.profilers.cpu import samplers as cpus
from ebpfprof.profilers.cpu.samplers import Samplers, online_cpus
from tests.kernel.samplerprogram import (
    HZ,
    OPEN_SAMPLER,
    counting_program,
    mine,
    online_now,
    only_on,
    refused,
    samples_of,
    work,
    work_until,
)

pytestmark = pytest.mark.alone


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[BpfProgram]:
    with counting_program(monkeypatch) as loaded:
        yield loaded


def test_an_absent_processor_is_an_error(program: BpfProgram) -> None:
    with pytest.raises(AttachFailed, match=r"processor 99999: .*errno"):
        perf_events.open_cpu_sampler(99999, HZ, hardware=False)


def test_samplers_follow_processors_that_come_and_go(
    program: BpfProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The list is a made-up one; the tests below switch a real processor off."""
    online = tmp_path / "online"
    monkeypatch.setattr(cpus, "ONLINE", online)
    first, second = online_now()[:2]

    online.write_text(f"{first}\n")
    with Samplers(program, "on_sample", HZ) as samplers:
        samplers.refresh()
        assert list(samplers.cpus) == [first]

        online.write_text(f"{first},{second}\n")
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]
        with only_on(second):
            work(5 / HZ)
        assert samples_of(program) == 0

        samplers.enable()
        samplers.refresh()
        online.write_text(f"{second}\n")
        samplers.refresh()
        assert list(samplers.cpus) == [second]
        count = samples_of(program, cpu=first)
        with only_on(first):
            work(10 / HZ)
        assert samples_of(program, cpu=first) == count

        online.write_text(f"{first}-{second}\n")
        samplers.refresh()
        with only_on(first):
            work_until(lambda: mine(program, cpu=first) >= 5)
        assert list(samplers.cpus) == [first, second]
        assert samplers.unsampled == {}

        online.write_text(f"{first}-{second},99999\n")
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]
        assert set(samplers.unsampled) == {99999}
        assert "processor 99999" in samplers.unsampled[99999]

        online.unlink()
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]

        with monkeypatch.context() as patched:
            refused(patched, first)
            for text in (f"{second}", f"{first}-{second}"):
                online.write_text(text)
                samplers.refresh()
        assert list(samplers.cpus) == [second]
        assert samplers.unsampled[first] == "refused"
        samplers.disable()
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]
        assert first not in samplers.unsampled
        count = mine(program, cpu=first)
        with only_on(first):
            work(5 / HZ)
        assert mine(program, cpu=first) == count  # it came while they were disabled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\n", (0,)),
        ("0-3\n", (0, 1, 2, 3)),
        ("0-1,4,6-7\n", (0, 1, 4, 6, 7)),
        ("1,130-131", (1, 130, 131)),
    ],
)
def test_lists_of_processors_are_parsed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: tuple[int, ...]
) -> None:
    monkeypatch.setattr(cpus, "ONLINE", tmp_path / "online")
    (tmp_path / "online").write_text(text)
    assert online_cpus() == expected


@pytest.mark.parametrize("text", [None, "", "\n", "x", "0-", "-1", "0,,1", "0-1-2", "1:2", "٣"])
def test_a_corrupt_list_of_processors_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    monkeypatch.setattr(cpus, "ONLINE", tmp_path / "online")
    if text is not None:
        (tmp_path / "online").write_text(text)
    with pytest.raises(KernelUnsupported, match="does not list its processors"):
        online_cpus()


def test_a_processor_that_goes_offline_first_is_left_out(
    program: BpfProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, gone, *_ = online_now()

    def open_cpu_sampler(cpu: int, hz: int, *, hardware: bool) -> int:
        if cpu == gone:
            raise perf_events.CpuOffline("Processor is not online.")
        return OPEN_SAMPLER(cpu, hz, hardware=hardware)

    monkeypatch.setattr(perf_events, "open_cpu_sampler", open_cpu_sampler)
    with Samplers(program, "on_sample", HZ) as samplers:
        assert gone not in samplers.cpus
        assert first in samplers.cpus
        samplers.refresh()
        assert gone not in samplers.cpus
        monkeypatch.undo()
        samplers.refresh()
        assert gone in samplers.cpus
        assert samplers.unsampled == {}


@contextmanager
def switched_off(cpu: int) -> Iterator[None]:
    """Take a processor offline; it is back behind the block."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    path.write_text("0")
    try:
        yield
    finally:
        path.write_text("1")


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_processor_switched_off_and_on_is_sampled_again(
    program: BpfProgram, *, is_noticed: bool
) -> None:
    *others, cpu = online_now()
    with Samplers(program, "on_sample", HZ) as samplers:
        samplers.enable()
        with only_on(cpu):
            work_until(lambda: mine(program, cpu=cpu) >= 5)
        with switched_off(cpu):
            with pytest.raises(perf_events.CpuOffline, match=f"Processor {cpu} is not online"):
                perf_events.open_cpu_sampler(cpu, HZ, hardware=False)
            if is_noticed:
                samplers.refresh()
                assert samplers.cpus == tuple(others)
        count = mine(program, cpu=cpu)
        with only_on(cpu):
            work(5 / HZ)
            assert mine(program, cpu=cpu) == count  # the event died

            def is_sampled() -> bool:
                samplers.refresh()
                return mine(program, cpu=cpu) >= count + 5

            work_until(is_sampled)
        assert samplers.cpus == online_now()
        assert samplers.unsampled == {}
