"""All recordings of one process, used like one."""

from __future__ import annotations

from typing import Any

from ebpfprof.errors import AttachFailed
from ebpfprof.overhead.cost import Cost, Runs
from ebpfprof.profile.losses import Loss
from ebpfprof.recording.loaded_profilers import ProcessRecordings, end_together
from tests.unit.recording.made_up_profiler import MadeUpRecording


class Samples:
    """The goroutine samples of a process, which note what they are asked to do."""

    def __init__(self, calls: list[str]) -> None:
        self.calls, self.from_ns, self.until_ns = calls, 0, 0

    def count_from(self, at_ns: int) -> None:
        self.from_ns = at_ns

    def end_at(self, at_ns: int) -> None:
        self.until_ns = at_ns

    def refresh(self) -> None:
        self.calls.append("refresh")

    def poll(self) -> None:
        self.calls.append("poll")


class Two:
    """Two recordings of a process, of which the first one has probes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.samples = Samples(self.calls)
        sampler: Any = self.samples
        self.all = ProcessRecordings(sampler)
        self.waits = MadeUpRecording(self.calls, name=" waits")
        self.cpu = MadeUpRecording(self.calls, name=" cpu", has_probes=False)
        self.all.add(self.waits, {"mutex", "block"})
        self.all.add(self.cpu, {"cpu"})


def test_probes_are_attached_last_and_removed_first() -> None:
    two = Two()
    began_ns = two.all.start()
    assert two.samples.from_ns == began_ns
    two.all.note_end()
    ended_ns = end_together([two.all])
    assert two.samples.until_ns == ended_ns > began_ns
    two.all.stop()
    two.all.close()
    assert two.calls == [
        *("start cpu", "start waits", "note end cpu", "note end waits"),
        *("end waits", "end cpu", "stop waits", "stop cpu", "close cpu", "close waits"),
    ]


def test_sums_are_those_of_recordings_that_were_started() -> None:
    two = Two()
    assert two.all.sums() == {}
    two.waits.start()
    assert list(two.all.sums()) == [two.waits]
    assert list(two.all.sums(["cpu"])) == []
    assert list(two.all.sums(["block", "cpu"])) == [two.waits]
    assert two.calls.count("refresh") == 4
    assert two.all.sums(["heap"]) == {}
    assert two.calls.count("refresh") == 4
    two.all.poll()
    assert two.calls[-1] == "poll"
    assert two.all.of_kinds(["block"]) == [two.waits]


def test_losses_are_of_the_kinds_of_their_recording() -> None:
    two = Two()
    two.waits.lost, two.cpu.lost = 3, 4
    assert set(two.all.losses()) == {
        Loss("late", "late naps", 3, ("block", "mutex")),
        Loss("late", "late naps", 4, ("cpu",)),
    }


def test_costs_add_up_and_failures_are_those_of_all() -> None:
    two = Two()
    assert two.all.cost() == Cost(Runs(6, 60.0, 6), hit_ns=10.0)
    assert two.all.failures() == []
    two.cpu.error = AttachFailed("There is no room.")
    assert two.all.failures() == [two.cpu.error]


def test_a_process_has_probes_if_one_recording_has() -> None:
    assert Two().all.has_probes
    only = ProcessRecordings(None)
    only.add(MadeUpRecording([], has_probes=False), {"cpu"})
    assert not only.has_probes
    only.poll()
