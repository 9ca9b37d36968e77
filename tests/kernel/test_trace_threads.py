"""What the kernel tells of threads in a trace: who woke them, and where they sleep."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

from ebpfprof.goruntime.process import inspect
from ebpfprof.process.process import Target as Process
from ebpfprof.timeline.model import KERNEL_FILE, Timeline
from ebpfprof.timeline.steps import StepKind, TraceStep
from ebpfprof.timeline.threads import thread_spans
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of
from tests.kernel.programs import program
from tests.targets_run import Target

BYTES = 40


def recorded(work: str, folder: Path) -> tuple[Timeline, str]:
    """The program at work for as long as it takes to write to its pipe, if it has one."""
    with Target.start(program("traced")) as target, Process(target.pid) as process:
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
            timeline = timeline_of(recorder)
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


def sleeps(timeline: Timeline, function: str) -> list[list[str]]:
    """The stacks of system calls of a function of the program, innermost first."""
    stacks = [timeline.stacks.get(step.stack, ()) for step in system_calls(timeline)]
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


def test_timers_are_interrupts_and_other_threads_of_the_program_have_ids(tmp_path: Path) -> None:
    timeline, _ = recorded("syscalls", tmp_path)
    naps = {step.tid for step in system_calls(timeline) if is_in(timeline, step, "main.nap")}
    found = sleeps(timeline, "main.nap")
    assert len(found) > 50
    assert all(any(name.endswith("sys_nanosleep") for name in names) for names in found)
    by = [step for step in wakes(timeline) if step.tid in naps]
    interrupts = [step for step in by if step.word.startswith("an interrupt")]
    assert len(interrupts) > 0.5 * len(by) > 50
    others = [step for step in wakes(timeline) if not step.word]
    assert len(others) > 10
    assert {step.other for step in others} <= {step.tid for step in timeline.steps}
