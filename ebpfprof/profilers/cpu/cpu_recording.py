"""The CPU samples of one process: which of them the kernel takes, and their sums."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.goruntime.goroutines.labels import target_fields as label_fields
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Cost
from ebpfprof.overhead.process_budget import HALF
from ebpfprof.process.mappings import MappedObjects
from ebpfprof.profile.losses import Loss, losses_of, losses_since
from ebpfprof.profilers.cpu.bound import SampleBound
from ebpfprof.profilers.cpu.cpu_program import CpuConfig, CpuProgram
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.process import Target
    from ebpfprof.profilers.cpu.cpu_names import CpuTranslator
    from ebpfprof.profilers.cpu.sample_table import SampleSums
    from ebpfprof.profilers.recording import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_LIVELY_S: Final = 3.0  # a program loads libraries when it starts


class CpuSums(NamedTuple):
    """The samples that come after a moment, and by which event they are taken."""

    samples: SampleSums
    sampler: str


class CpuRecording:
    """Has one process sampled."""

    has_probes = False  # timers interrupt it

    def __init__(self, profiler: CpuProfiler, opened: OpenedProcess, slot: int) -> None:
        """`slot` is the number of the process in the maps of the program."""
        self.slot, self.process, self.go = slot, opened.process, opened.go
        self.objects = opened.held.enter_context(MappedObjects(opened.process))
        self.is_sampled = False
        """Whether it is being recorded."""
        self._profiler, self._program = profiler, profiler.program
        self._is_active = False
        self._fields: dict[str, int] = {}
        self._bound, self._lease = SampleBound(), opened.budget.lease(self.cost, most=HALF)
        self._lively_until_s = 0.0
        self._translator: CpuTranslator | None = None
        self._runs_before = self._program.runs(slot)
        self._losses_before = losses_of(self._program.losses(), slot)

    def start(self) -> int:
        """Start to sample the process. Returns when that was. Raises as Recording.start."""
        self._lively_until_s = time.monotonic() + _LIVELY_S
        if not self._fields:
            self._fields = process_fields(self.process, self.go)
            self._program.learner.open(self.slot, self.objects, self.go)
        self._describe(active=True)
        self.is_sampled = True
        self._program.begin()
        return kernel_now_ns()

    def note_end(self) -> None:
        """Nothing to read."""

    def end(self, at_ns: int) -> None:
        """Take no more samples."""
        if self.is_sampled:
            self._describe(active=False)

    def stop(self) -> None:
        """Stop sampling; after the last process, close the samplers."""
        if self.is_sampled:
            self._describe(active=False)
            self._profiler.settle()
            self.is_sampled = False
            self._profiler.halt_if_idle()

    def sums(self) -> CpuSums:
        """A moment, from which on samples add up for as long as the caller keeps it."""
        if self.is_sampled:
            self._profiler.poll()
        one_in = self._bound.one_in
        thinned = f", at the end one sample in {one_in}, at random, to stay within --max-overhead"
        sampler = self._program.sampler + (thinned if one_in > 1 else "")
        return CpuSums(self._program.samples.sums(self.slot), sampler)

    def report(self, sums: CpuSums, since: CpuSums | None, builder: ReportBuilder) -> None:
        """Add the CPU profile; without `since` nobody kept the samples, and there is none."""
        from ebpfprof.profilers.cpu.cpu_names import CpuTranslator
        from ebpfprof.profilers.cpu.cpu_profile import report

        if since is None:
            return
        if self._translator is None:
            self._translator = CpuTranslator(self.objects, self.go)
        stacks = sums.samples - since.samples
        report(stacks, sums.sampler, self.objects, self._translator, builder)

    def cost(self) -> Cost:
        """The runs at CPU samples, without their interrupts."""
        return Cost(samples=self._program.runs(self.slot) - self._runs_before)

    def losses(self) -> Sequence[Loss]:
        """What it lost so far."""
        return losses_since(losses_of(self._program.losses(), self.slot), self._losses_before)

    def failures(self) -> Sequence[Exception]:
        """None of its own."""
        return ()

    def close(self) -> None:
        """Delete its data in the maps of the program."""
        if self._fields:
            self._profiler.settle()
            self._program.forget(self.slot)

    def is_lively(self, now_s: float) -> bool:
        """Whether it was started lately, so that it may load libraries."""
        return now_s < self._lively_until_s

    def keep_to_budget(self) -> None:
        """Have fewer samples taken if they cost too much."""
        share = self._lease.share
        if not (share and self.is_sampled):
            return
        is_too_much = self._bound.update(
            lambda: self._program.runs(self.slot), self.process.cpu_ns(), share
        )
        if is_too_much and self._is_active:
            self._describe(active=True)

    def _describe(self, *, active: bool) -> None:
        self._is_active = active
        fields = {"active": int(active), "one_in": self._bound.one_in}
        self._program.describe(self.slot, {**self._fields, **fields})


class CpuProfiler(Closing):
    """The loaded program with the recordings of processes. See recording.LoadedProfiler."""

    def __init__(self, targets: int, config: CpuConfig) -> None:
        """Start to compile; load() waits for the result. Raises what CpuProgram raises."""
        self.program = CpuProgram(targets, config)
        self._recordings: dict[int, CpuRecording] = {}  # by slot

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in seconds."""
        return self.program.tick_s

    def load(self, _goroutines: int = 0) -> None:
        """Make the maps and load the program. Raises what CpuProgram.load raises."""
        self.program.load()

    def record(self, opened: OpenedProcess, slot: int) -> CpuRecording:
        """The recording of a process with this number in the maps, not started yet."""
        recording = self._recordings[slot] = CpuRecording(self, opened, slot)
        opened.held.callback(self._recordings.pop, slot, None)
        return recording

    def poll(self) -> None:
        """Unwind samples and give the kernel rules, while a process is sampled."""
        now_s = time.monotonic()
        processes = {slot: recording.process for slot, recording in self._recordings.items()}
        lively = [slot for slot, recorded in self._recordings.items() if recorded.is_lively(now_s)]
        if self.program.poll(processes, lively):
            for recorded in self._recordings.values():
                recorded.keep_to_budget()

    def settle(self) -> None:
        """Unwind all samples in the ring buffer."""
        self.poll()
        self.program.settle()

    def halt_if_idle(self) -> None:
        """Close the samplers if no process is sampled."""
        if not any(recording.is_sampled for recording in self._recordings.values()):
            self.program.halt()

    def detach(self) -> None:
        """Close the samplers; the sums stay readable."""
        self.settle()
        for recording in self._recordings.values():
            recording.is_sampled = False
        self.program.detach()

    def losses(self) -> Sequence[Loss]:
        """Processors without samplers."""
        return self.program.losses_in_all()

    def failures(self) -> Sequence[Exception]:
        """The error because of which stacks are incomplete."""
        return self.program.failures()

    def close(self) -> None:
        """Close the samplers and free the maps."""
        self.program.close()


def process_fields(target: Target, go: GoTarget | None) -> dict[str, int]:
    """The fields of struct process of bpf/cpu/cpu.bpf.c, without `active` and `one_in`."""
    device, inode = target.pid_namespace()
    fields = {
        "namespace_device": device,
        "namespace_inode": inode,
        "tgid": target.innermost_pid(),
    }
    if go is None:
        return fields
    layout = go.binary.layout
    return {
        **fields,
        "g_offset": go.g_offset(),
        "m_offset": layout.offset("g", "m"),
        "g0_offset": layout.offset("m", "g0"),
        "curg_offset": layout.offset("m", "curg"),
        "c_calls_offset": layout.offset("m", "ncgo"),
        "vdso_sp_offset": layout.offset("m", "vdsoSP"),
        "vdso_pc_offset": layout.offset("m", "vdsoPC"),
        "sched_sp_offset": layout.offset("g", "sched.sp"),
        "sched_pc_offset": layout.offset("g", "sched.pc"),
        "syscall_sp_offset": layout.offset("g", "syscallsp"),
        "syscall_pc_offset": layout.offset("g", "syscallpc"),
        **label_fields(layout),
    }
