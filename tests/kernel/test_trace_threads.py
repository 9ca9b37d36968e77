"""What the kernel shows of threads in a trace: who woke them, and where they sleep."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.export.timelines import go_trace
from ebpfprof.process.process import Target as Process
from ebpfprof.timeline.model import KERNEL_FILE, Timeline
from ebpfprof.timeline.steps import StepKind, TraceStep
from ebpfprof.timeline.threads import thread_spans
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of
from tests.builds import versions
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target
from tests.toolchains import toolchain

BYTES = 40


def recorded(work: str, folder: Path, binary: Path | None = None) -> tuple[Timeline, str]:
    """The program at work for as long as it takes to write to its pipe, if it has one."""
    with Target.start(binary or program("traced")) as target, Process(target.pid) as process:
        target.ask(f"trace {folder / 'unused'} {work}", "begun")
        target.ask("end", "ended")
        with TraceRecorder(inspect(process), TraceOptions()) as recorder:
            recorder.load()
            recorder.start()
            over = threading.Event()
            reads = threading.Thread(target=lambda: recorder.record(60, lambda _: over.is_set()))
            reads.start()
            pipes = [line.split()[1:] for line in target.output if line.startswith("pipe")]
            if pipes:
                write(target, *pipes[0])
            else:
                over.wait(0.5)
            over.set()
            reads.join()
            recorder.stop()
            timeline = timeline_of(recorder.recorded())
        target.kill()
    return (
        timeline,
        f"{Path('/proc/thread-self/comm').read_text().strip()} ({threading.get_native_id()})",
    )


def write(target: Target, reads: str, writes: str) -> None:
    """Write to the pipe whenever a thread sleeps in read() of it."""
    sleeps = f"0 {int(reads):#x} "  # the number of read()
    tasks = Path(f"/proc/{target.pid}/task")
    with open(f"/proc/{target.pid}/fd/{writes}", "wb", buffering=0) as file:
        for _ in range(BYTES):
            while not any(
                (task / "syscall").read_text().startswith(sleeps) for task in tasks.iterdir()
            ):
                time.sleep(0.0005)  # the processor is for the target: it is on its way to read()
            file.write(b"x")
            target.expect("got")


def wakes(timeline: Timeline) -> list[TraceStep]:
    return [step for step in timeline.steps if step.kind is StepKind.THREAD_WAKE]


def system_calls(timeline: Timeline) -> list[TraceStep]:
    return [step for step in timeline.steps if step.kind is StepKind.SYSCALL]


def is_in(timeline: Timeline, step: TraceStep, function: str) -> bool:
    return any(call.frame.function == function for call in timeline.stacks.get(step.stack, ()))


def sleeps(timeline: Timeline, function: str, *, is_c: bool = False) -> list[list[str]]:
    """The stacks of system calls of a function of the program, innermost first.

    `is_c`: without those that a sample of all goroutines found before.
    """
    stacks = [
        timeline.stacks.get(step.stack, ())
        for step in system_calls(timeline)
        if not (is_c and step.is_inferred)
    ]
    found = [[call.frame.function for call in stack] for stack in stacks]
    for stack in stacks:
        kernel = [call.frame.file == KERNEL_FILE for call in stack]
        assert kernel == sorted(kernel, reverse=True)  # the kernel's functions are the inner ones
    return [names for names in found if function in names]


def test_another_process_wakes_a_thread_that_reads_in_a_system_call(tmp_path: Path) -> None:
    timeline, ours = recorded("listens", tmp_path)
    by = Counter(step.word for step in wakes(timeline))
    assert by[ours] >= BYTES - 2  # at its first switch the program learns whose threads they are
    spans = [span for span in thread_spans(timeline) if span.wake and span.wake.word == ours]
    assert len(spans) >= BYTES - 2
    readers = {step.tid for step in system_calls(timeline) if is_in(timeline, step, "main.listen")}
    assert {span.tid for span in spans} <= readers
    for span in spans:
        assert span.wake
        assert span.begin_ns >= span.wake.at_ns
    found = sleeps(timeline, "main.listen")
    assert len(found) >= BYTES - 2
    for names in found:
        kernel = names[: names.index("syscall.Syscall")]
        assert kernel[0].endswith("pipe_read")
        assert "ksys_read" in kernel
        assert not {"schedule", "__schedule"} & set(names)


def wakes_from(timeline: Timeline, function: str) -> list[TraceStep]:
    """The wakes of threads that had just fallen asleep in a system call of the function."""
    asleep: set[int] = set()
    found = []
    for step in timeline.steps:
        if step.kind is StepKind.SYSCALL:
            if is_in(timeline, step, function):
                asleep.add(step.tid)
        elif step.kind is StepKind.THREAD_ON:
            asleep.discard(step.tid)
        elif step.kind is StepKind.THREAD_WAKE and step.tid in asleep:
            found.append(step)
    return found


@pytest.mark.full
def test_timers_are_interrupts_also_of_a_program_that_computes(tmp_path: Path) -> None:
    """An interrupt that comes in user mode has no stack of its own, and no thread woke anybody."""
    timeline, _ = recorded("naps", tmp_path)
    found = sleeps(timeline, "main.nap")
    assert all(any(name.endswith("sys_nanosleep") for name in names) for names in found)
    by = [step.word for step in wakes_from(timeline, "main.nap")]
    assert len(by) > 20
    assert [word for word in by if not word.startswith("an interrupt")] == []
    assert any(word.startswith("an interrupt, while traced (") for word in by)


@pytest.mark.full
def test_other_threads_of_the_program_have_ids(tmp_path: Path) -> None:
    timeline, _ = recorded("locks", tmp_path)
    others = [step for step in wakes(timeline) if not step.word]
    assert len(others) > 10
    assert {step.other for step in others} <= {step.tid for step in timeline.steps}


@pytest.mark.parametrize("minor", versions("1.19", NEWEST))
def test_sleeps_in_c_have_its_stack_without_frame_pointers(minor: str, tmp_path: Path) -> None:
    timeline, _ = recorded("calls", tmp_path, program("traced", minor, "cgo"))
    found = sleeps(timeline, "main.call", is_c=True)
    lost = re.search(r"incomplete: (\d+) sleeps in C", "; ".join(timeline.comments))
    seen = [names for names in found if "inner" in names]
    assert len(seen) > 20
    assert len(found) - len(seen) <= (int(lost[1]) if lost else 0)
    for names in seen:
        assert len([name for name in names if name.endswith("sys_clock_nanosleep")]) == 1
        # The second call of inner is a jump, as its caller's last one.
        of_c = names[names.index("inner") : names.index("main._Cfunc_sleeps")]
        assert [name for name in of_c if not name.startswith("runtime.")] in (
            ["inner", "outer"],
            ["inner"],
        )
    whole = [names for names in seen if "outer" in names]
    assert len(whole) > 0.8 * len(seen)  # a call sleeps twice: the first sleep is the one shown
    path = tmp_path / "trace"
    path.write_bytes(go_trace.encode(timeline))
    text = toolchain("1.27").go("tool", "trace", "-d=parsed", path)
    assert re.search(r"\tinner @ 0x", text)
