"""Loads the CPU program, attaches its samplers, reads its maps, and gives it unwind rules."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, Self

from ebpfprof.kernel.btf import field_offsets
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.overhead.cost import Runs, runs
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers import labels
from ebpfprof.profilers.cpu.learner import MAX_LINES, MAX_RULES, Learner
from ebpfprof.profilers.cpu.partial_samples import (
    LARGE_BYTES,
    ring_bytes_for,
)
from ebpfprof.profilers.cpu.sample_table import SampleTable, rows_for
from ebpfprof.profilers.cpu.samplers import Samplers, online_cpus
from ebpfprof.profilers.cpu.unwinder import MAX_DEPTH
from ebpfprof.profilers.kernel_losses import losses
from ebpfprof.profilers.label_pages import AbsentLabels
from ebpfprof.profilers.options import Options
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.process.process import Target

_FUNCTION: Final = "on_sample"
_NUMBERS: Final = (
    *("TARGETS", *labels.NUMBERS, "FS_BASE_OFFSET", "MEMORY_OFFSET"),
    *("SIGNAL_STACK_OFFSET", "SIGNAL_STACK_BYTES_OFFSET"),
)
_LARGE_MAPS = (
    *("MAX_SAMPLES", "MAX_LABEL_SETS", "MAX_CHOSEN_LABELS", "MAX_LINES", "MAX_RULES"),
    "RING_PAGES",
)
_CHECK_S = 0.2  # between reads of the table of samples and of missing label pages
_AROUND_S = 1.0  # between reads of processors and mappings of processes, without unknown code
_AROUND_EACH_S = 0.05  # the same for each of many processes
_IDLE_TICK_S: Final = 0.1
_TICK_S = 0.25
_LEARNING_TICK_S = 0.02
_UNSAMPLED = "processors that came online during the recording, without a sampler"
_RULES_FULL = (
    "processes with more rules for unwinding than fit into the map: stacks may be cut short"
)


@dataclass(frozen=True, slots=True)
class CpuConfig:
    """What to sample: `hz` times a second of CPU time, with kernel stacks and labels if set."""

    hz: int = 99
    kernel: bool = True
    labels: bool = True
    label_keys: tuple[int, ...] = ()
    """Hashes of the selected label keys (labels.key_hashes); () selects all."""

    @classmethod
    def of(cls, options: Options) -> Self:
        """The configuration for these options."""
        keys = labels.key_hashes(options.labels)
        return cls(options["hz"], bool(options["kernel"]), options.labels != (), keys)


def source(*, kernel: bool, labels: bool) -> ProgramSource:
    """The program, with kernel stacks and labels if set."""
    return ProgramSource(
        "cpu/cpu.bpf.c",
        {
            "WITH_KERNEL": int(kernel),
            "WITH_LABELS": int(labels),
            # BCC makes the maps, too, but we don't use its maps: load() makes large ones.
            **dict.fromkeys(_LARGE_MAPS, 1),
            "MAX_DEPTH": MAX_DEPTH,
        },
        perf_functions=(_FUNCTION,),
        numbers=_NUMBERS,
    )


def sources() -> Iterator[ProgramSource]:
    """The program with all combinations of options."""
    for kernel, has_labels in product((True, False), repeat=2):
        yield source(kernel=kernel, labels=has_labels)


class CpuProgram(Closing):
    """The BPF program, loaded once, for any number of processes: each has a slot in its maps."""

    def __init__(self, targets: int, config: CpuConfig) -> None:
        """Start to compile for up to `targets` processes; load() waits for the result.

        Raises what BpfProgram and field_offsets raise.
        """
        thread, fs_base, memory, signal_stack, signal_stack_bytes = field_offsets(
            ("task_struct", "thread"),
            ("thread_struct", "fsbase"),
            ("task_struct", "mm"),
            ("task_struct", "sas_ss_sp"),
            ("task_struct", "sas_ss_size"),
        )
        self._config = config
        self._checked_s = self._all_checked_s = 0.0
        self._is_learning = True
        self._samplers: Samplers | None = None
        self.sampler = ""
        """The event that samples, "cpu-clock" or "ref-cycles", once the samplers were started."""
        self._unsampled = 0
        self._failure: Exception | None = None
        self._program = BpfProgram(
            source(kernel=config.kernel, labels=config.labels),
            {
                "TARGETS": targets,
                **labels.numbers(config.label_keys),
                "FS_BASE_OFFSET": thread + fs_base,
                "MEMORY_OFFSET": memory,
                "SIGNAL_STACK_OFFSET": signal_stack,
                "SIGNAL_STACK_BYTES_OFFSET": signal_stack_bytes,
            },
            {"MAX_TARGETS": targets},
        )
        self._absent_labels = AbsentLabels(self._program)

    def load(self) -> None:
        """Make the maps and load the program, without samplers. Raises what BpfProgram raises."""
        hz, processors = self._config.hz, len(online_cpus())
        rows, ring_bytes = rows_for(hz, processors), ring_bytes_for(hz * processors * _TICK_S)
        self._ring_room = ring_bytes // LARGE_BYTES // 2
        self._program.load(
            {
                "samples": rows,
                **labels.rows(self._config.label_keys),
                "lines": MAX_LINES,
                "rules": MAX_RULES,
                "unlearned": ring_bytes,
            },
            grows=frozenset({"lines"}),
        )
        labels.choose(self._program, self._config.label_keys)
        self.samples = SampleTable(self._program, rows, has_labels=self._config.labels)
        """The samples of all processes."""
        self.learner = Learner(self._program, self.samples)
        """The unwind rules of all processes."""

    def begin(self) -> None:
        """Start the samplers, unless they run. Raises AttachFailed or PermissionDenied."""
        self._is_learning = True
        if self._samplers is None:
            self._samplers = Samplers(self._program, _FUNCTION, self._config.hz)
            self._samplers.enable()
            self.sampler = self._samplers.kind

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in s: before samples fill the ring buffer.

        Few samples use it once the kernel has the rules. Each poll uses processors that the target
        could use, so it is not shorter than necessary.
        """
        samplers = self._samplers  # another thread may close them
        if samplers is None:
            return _IDLE_TICK_S
        if self._is_learning:
            return _LEARNING_TICK_S
        a_second = self._config.hz * max(1, len(samplers.cpus))
        return min(_TICK_S, max(_LEARNING_TICK_S, self._ring_room / a_second))

    def poll(self, processes: Mapping[int, Target], lively: Collection[int]) -> bool:
        """Unwind the samples that the kernel could not unwind, and give it their rules.

        Call it every `tick_s` during a recording. `processes` are all, by slot; those in the slots
        `lively` may load libraries just now. Returns whether it read the tables, too: it does five
        times a second. It stores errors in `failures` and continues: the samples and the other
        profiles matter more.
        """
        if self._samplers is None:
            return False
        self._is_learning = is_due = False
        try:
            now_s = time.monotonic()
            is_due = now_s >= self._checked_s + _CHECK_S
            if is_due:
                self._checked_s = now_s
                self.samples.make_room()
                if self._config.labels:
                    self._absent_labels.bring(processes)
                if now_s >= self._all_checked_s + max(_AROUND_S, _AROUND_EACH_S * len(processes)):
                    self._check_processes()
                elif lively or self.learner.has_waiting:
                    self.learner.refresh(lively)
            self._is_learning = self.learner.learn()
        except Exception as error:  # sampling continues; failures() reports it
            self._failure = self._failure or error
        return is_due

    def describe(self, slot: int, fields: Mapping[str, int]) -> None:
        """Tell the kernel about a process: `fields` are those of struct process."""
        self._program.maps["processes"].set_struct(slot, fields)

    def settle(self) -> None:
        """Unwind the samples that wait for code to be known, after a poll()."""
        if self.learner.has_waiting:
            try:
                self._check_processes()
            except Exception as error:  # see poll
                self._failure = self._failure or error

    def halt(self) -> None:
        """Close the samplers; begin() may be called again."""
        if self._samplers:
            self._samplers.close()
            self._samplers = None

    def forget(self, slot: int) -> None:
        """Delete all data of a process that was sampled, and is not any more."""
        self.learner.forget(slot)
        self.samples.forget(slot)

    def detach(self) -> None:
        """Close the samplers; the sums stay readable."""
        self.halt()
        self._program.detach()

    def failures(self) -> Sequence[Exception]:
        """The error because of which stacks are incomplete."""
        errors = (self._failure, self.learner.failure if self._program.is_loaded else None)
        return [error for error in errors if error][:1]

    def runs(self, slot: int) -> Runs:
        """What samples in this slot cost so far, without their interrupts, also earlier ones."""
        if not self._program.is_loaded:
            return Runs()
        cost = self._program.maps["costs"].sum_at(slot)
        return runs(cost["runs"], cost["timed"], cost["timed_ns"])

    def losses(self) -> Sequence[Loss]:
        """What was lost so far in each slot, also of earlier processes."""
        if not self._program.is_loaded:
            return ()
        more = {"samples_full": self.samples.lost}
        lost = losses(self._program.maps["losses"].numbers(), more)
        full = self.learner.full_targets
        return [*lost, *(Loss("rules_full", _RULES_FULL, 1, target=slot) for slot in full)]

    def losses_in_all(self) -> Sequence[Loss]:
        """Processors without samplers."""
        return [Loss("cpus_unsampled", _UNSAMPLED, self._unsampled)] if self._unsampled else []

    def close(self) -> None:
        """Close the samplers and free the maps."""
        self.halt()
        self._absent_labels.close()
        self._program.close()

    def _check_processes(self) -> None:
        """Read which processors and mappings there are, and unwind the samples that need them."""
        self._all_checked_s = time.monotonic()
        if self._samplers:
            self._samplers.refresh()
            self._unsampled = len(self._samplers.unsampled)
        self.learner.refresh()
