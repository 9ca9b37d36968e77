"""What a process used while it was recorded, and who traces it."""

from __future__ import annotations

from typing import Any

import pytest

from ebpfprof.process.process import TargetEnd
from ebpfprof.recording.target import RecordedTarget


class MadeUpTarget:
    """A process whose CPU time and tracer a test sets."""

    pid = 7
    name = "made-up"
    cpu: int | None = 100
    kernel: int | None = 10
    traced_by = ""
    end: TargetEnd | None = None

    def cpu_ns(self) -> int | None:
        return self.cpu

    def kernel_ns(self) -> int | None:
        return self.kernel

    def tracer(self) -> str:
        return self.traced_by

    def ending(self) -> TargetEnd | None:
        return self.end


def recorded(target: MadeUpTarget, *, has_probes: bool = True) -> RecordedTarget:
    stand_in: Any = target
    return RecordedTarget(stand_in, None, (), has_probes=has_probes)


def test_cpu_time_counts_while_a_process_is_recorded() -> None:
    target = MadeUpTarget()
    process = recorded(target)
    process.read_cpu_time()
    assert (process.cpu_ns, process.kernel_ns) == (0, None)
    process.begin_cpu()
    target.cpu, target.kernel = 150, 30
    process.read_cpu_time()
    assert (process.cpu_ns, process.kernel_ns) == (50, 20)
    target.cpu, target.kernel = 160, 35
    process.read_cpu_time(is_over=True)
    target.cpu, target.kernel = 1000, 500
    process.read_cpu_time()
    assert (process.cpu_ns, process.kernel_ns) == (60, 25)
    process.begin_cpu()
    target.cpu, target.kernel = 1003, 502
    process.read_cpu_time()
    assert (process.cpu_ns, process.kernel_ns) == (63, 27)


def test_the_cpu_time_of_a_process_that_ended_is_the_last_known_one() -> None:
    target = MadeUpTarget()
    process = recorded(target)
    process.begin_cpu()
    target.cpu, target.kernel = 150, None
    process.read_cpu_time()
    assert (process.cpu_ns, process.kernel_ns) == (50, None)
    target.cpu = None
    process.read_cpu_time()
    assert process.cpu_ns == 50
    target.cpu, process.ending = 900, TargetEnd("it ended")
    process.read_cpu_time()
    assert process.cpu_ns == 50


def test_cpu_time_that_can_not_be_read_at_the_start_is_not_counted() -> None:
    target = MadeUpTarget()
    target.cpu = target.kernel = None
    process = recorded(target)
    process.begin_cpu()
    target.cpu, target.kernel = 150, 30
    process.read_cpu_time()
    assert (process.cpu_ns, process.kernel_ns) == (0, None)


def test_an_end_is_new_once() -> None:
    target = MadeUpTarget()
    process = recorded(target)
    assert not process.note_ending()
    assert process.ended_ns == 0
    target.end = TargetEnd("it ended")
    assert process.note_ending()
    assert process.ended_ns > 0
    assert not process.note_ending()


@pytest.mark.parametrize(
    ("is_over", "text"), [(False, "is traced by gdb"), (True, "is now traced by gdb")]
)
def test_a_debugger_is_reported_once(is_over: bool, text: str) -> None:
    target = MadeUpTarget()
    process = recorded(target)
    assert not process.notice_tracer(is_over=is_over)
    target.traced_by = "gdb"
    assert process.notice_tracer(is_over=is_over)
    assert text in process.traced
    assert not process.notice_tracer(is_over=is_over)


def test_without_an_argument_the_recording_goes_on() -> None:
    target = MadeUpTarget()
    target.traced_by = "gdb"
    process = recorded(target)
    assert process.notice_tracer()
    assert "is now" not in process.traced


def test_a_debugger_does_no_harm_without_probes() -> None:
    target = MadeUpTarget()
    target.traced_by = "gdb"
    process = recorded(target, has_probes=False)
    assert not process.notice_tracer()
    assert process.traced == ""


def test_without_go_there_is_no_code_that_lacks_probes_and_no_goroutine() -> None:
    process = recorded(MadeUpTarget())
    assert not process.notice_unprobed()
    assert process.goroutines() == 0
