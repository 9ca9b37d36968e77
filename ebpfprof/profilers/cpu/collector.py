"""Loads the CPU program, attaches its samplers, reads sums from its maps, and puts rules in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from ebpfprof.goruntime.goroutines.labels import target_fields as label_fields
from ebpfprof.kernel.btf import field_offsets
from ebpfprof.kernel.losses import Loss, losses
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.overhead.cost import Runs, runs
from ebpfprof.profilers import labels
from ebpfprof.profilers.cpu.bound import SampleBound
from ebpfprof.profilers.cpu.learner import MAX_LINES, MAX_RULES, Learner
from ebpfprof.profilers.cpu.partial_samples import (
    LARGE_BYTES,
    ring_bytes_for,
)
from ebpfprof.profilers.cpu.sample_table import SampleTable, rows_for
from ebpfprof.profilers.cpu.samplers import Samplers, online_cpus
from ebpfprof.profilers.cpu.unwinder import MAX_DEPTH
from ebpfprof.profilers.label_pages import AbsentLabels
from ebpfprof.profilers.options import Options
from ebpfprof.system.closing import Closing
from symbolizer.codeanalysis.tls import g_offset

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.mappings import MappedObjects
    from ebpfprof.process.process import Target

_FUNCTION: Final = "on_sample"
_LARGE_MAPS = ("MAX_SAMPLES", "MAX_LABEL_SETS", "MAX_LINES", "MAX_RULES", "RING_PAGES")
_LOOK_S = 0.2  # between looks at the table of samples and at missing label pages
_SELDOM_S = 1.0  # between looks at processors and mappings of targets, without unknown code
_SELDOM_EACH_S = 0.05  # the same for each of many targets
_LIVELY_S = 3.0  # after a start, look at these as often as at the table
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
    max_share: float = 0.0
    """The part of a target's CPU time that sampling may take, 0 to 1; 0: no bound."""

    @classmethod
    def of(cls, options: Options) -> Self:
        """The configuration for these options."""
        # If waits are recorded, too, they get half of the bound.
        max_share = options.max_overhead / (200 if options.waiting else 100)
        keys = labels.key_hashes(options.labels)
        return cls(options["hz"], bool(options["kernel"]), options.labels != (), keys, max_share)


class CpuCollector(Closing):
    """The BPF program, loaded once, for any number of targets."""

    def __init__(self, targets: int, config: CpuConfig) -> None:
        """Start to compile for up to `targets` targets; load() waits for the result.

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
        self._fields: dict[int, dict[str, int]] = {}
        self._is_active: dict[int, bool] = {}
        self._targets: dict[int, Target] = {}
        self._bound = SampleBound(config.max_share)
        self._looked_s = self._looked_around_s = 0.0
        self._lively_until_s: dict[int, float] = {}
        self._is_learning = True
        self._samplers: Samplers | None = None
        self._sampler = ""
        self._unsampled = 0
        self._failure: Exception | None = None
        self._program = BpfProgram(
            "cpu/cpu.bpf.c",
            {
                "WITH_KERNEL": int(config.kernel),
                "WITH_LABELS": int(config.labels),
                **labels.macros(config.label_keys),
                # BCC makes the maps, too, but we don't use its maps: load() makes large ones.
                **dict.fromkeys(_LARGE_MAPS, 1),
                "MAX_TARGETS": targets,
                "MAX_DEPTH": MAX_DEPTH,
                "FS_BASE_OFFSET": thread + fs_base,
                "MEMORY_OFFSET": memory,
                "SIGNAL_STACK_OFFSET": signal_stack,
                "SIGNAL_STACK_BYTES_OFFSET": signal_stack_bytes,
            },
            functions=(),
            perf_functions=(_FUNCTION,),
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
                "label_sets": labels.MAX_LABEL_SETS,
                "lines": MAX_LINES,
                "rules": MAX_RULES,
                "unlearned": ring_bytes,
            },
            grows=frozenset({"lines"}),
        )
        labels.choose(self._program, self._config.label_keys)
        self.samples = SampleTable(self._program, rows, has_labels=self._config.labels)
        """The samples of all targets."""
        self._learner = Learner(self._program, self.samples)

    def attach(
        self, index: int, target: Target, objects: MappedObjects, go: GoTarget | None
    ) -> None:
        """Give a target the number `index`, unless it has it, and sample it.

        Samples come while the samplers run: see start(). Raises TargetGone if it has ended.
        """
        if index not in self._targets:
            self._fields[index] = _process_fields(target, go)
            self._targets[index] = target
            self._learner.open(index, objects, go)
        self._is_learning = True
        self._lively_until_s[index] = time.monotonic() + _LIVELY_S
        self._describe(index, active=True)

    def start(self) -> None:
        """Start the samplers. Raises AttachFailed or PermissionDenied."""
        self._samplers = Samplers(self._program, _FUNCTION, self._config.hz)
        self._samplers.enable()
        self._sampler = self._samplers.kind

    def sampler(self, index: int) -> str:
        """The event that samples a target, "cpu-clock" or "ref-cycles", and the part it takes."""
        one_in = self._bound.one_in(index)
        thinned = f", in the end one sample in {one_in}, by chance, to keep to --max-overhead"
        return self._sampler + (thinned if one_in > 1 else "")

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in s: before samples fill the ring buffer.

        Few samples use it once the kernel has the rules. Each poll uses processors that the target
        could use, so it is not shorter than necessary.
        """
        samplers = self._samplers  # another thread may close them
        if self._is_learning or not samplers:
            return _LEARNING_TICK_S
        a_second = self._config.hz * max(1, len(samplers.cpus))
        return min(_TICK_S, max(_LEARNING_TICK_S, self._ring_room / a_second))

    def poll(self) -> None:
        """Unwind the samples that the kernel could not unwind, and give it their rules.

        Call it every `tick_s` during a recording. It stores errors in `failure` and goes on: the
        samples and the other profiles matter more.
        """
        self._is_learning = False
        try:
            now_s = time.monotonic()
            if now_s >= self._looked_s + _LOOK_S:
                self._looked_s = now_s
                self.samples.look()
                if self._config.labels:
                    self._absent_labels.bring(self._targets)
                self._look_around(now_s)
                if self._bound.is_set:
                    for index, target in self._targets.items():
                        is_too_much = self._bound.look(
                            index, partial(self.runs, index), target.cpu_ns()
                        )
                        if is_too_much and self._is_active[index]:
                            self._describe(index, active=True)
            self._is_learning = self._learner.learn()
        except Exception as error:
            self._failure = self._failure or error

    def end(self, index: int) -> None:
        """Take no more samples of a target until the next attach()."""
        self._describe(index, active=False)

    def pause(self, index: int) -> None:
        """The same, and unwind its last samples."""
        self.end(index)
        self._settle()

    def forget(self, index: int) -> None:
        """Delete all data of a target that is not sampled, so that its number is free."""
        if index not in self._targets:
            return
        self._settle()
        self._learner.forget(index)
        self.samples.forget(index)
        self._bound.forget(index)
        for kept in (self._fields, self._targets, self._is_active, self._lively_until_s):
            del kept[index]

    def halt(self) -> None:
        """Close the samplers; start() may be called again."""
        self._settle()
        if self._samplers:
            self._samplers.close()
            self._samplers = None

    def detach(self) -> None:
        """Close the samplers; the sums stay readable."""
        self.halt()
        self._program.detach()

    @property
    def failure(self) -> Exception | None:
        """The error because of which stacks are incomplete; None without one."""
        return self._failure or self._learner.failure

    def runs(self, index: int) -> Runs:
        """What the samples of a target cost so far, without their interrupts."""
        cost = self._program.maps["costs"].sum_at(index)
        return runs(cost["runs"], cost["timed"], cost["timed_ns"])

    def losses(self) -> Sequence[Loss]:
        """What it lost so far of each target."""
        more = {"samples_full": self.samples.lost}
        found = list(losses(self._program.maps["losses"].numbers(), more))
        if self._unsampled:
            found.append(Loss("cpus_unsampled", _UNSAMPLED, self._unsampled))
        full = self._learner.full_targets
        return found + [Loss("rules_full", _RULES_FULL, 1, target=index) for index in full]

    def close(self) -> None:
        """Close the samplers and free the maps."""
        if self._samplers:
            self._samplers.close()
            self._samplers = None
        self._absent_labels.close()
        self._program.close()

    def _describe(self, index: int, *, active: bool) -> None:
        self._is_active[index] = active
        fields = {"active": int(active), "one_in": self._bound.one_in(index)}
        self._program.maps["processes"].set_struct(index, {**self._fields[index], **fields})

    def _look_around(self, now_s: float) -> None:
        """Read mappings: of all targets now and then, of those that load libraries more often."""
        lively = [index for index, until_s in self._lively_until_s.items() if now_s < until_s]
        if now_s >= self._looked_around_s + max(_SELDOM_S, _SELDOM_EACH_S * len(self._targets)):
            self._look()
        elif lively or self._learner.has_waiting:
            self._learner.refresh(lively)

    def _look(self) -> None:
        """Read which processors and mappings there are, and unwind the samples that need them."""
        self._looked_around_s = time.monotonic()
        if self._samplers:
            self._samplers.refresh()
            self._unsampled = len(self._samplers.unsampled)
        self._learner.refresh()

    def _settle(self) -> None:
        """Unwind all samples in the ring buffer."""
        self.poll()
        if self._learner.has_waiting:
            try:
                self._look()
            except Exception as error:  # see poll
                self._failure = self._failure or error


def _process_fields(target: Target, go: GoTarget | None) -> dict[str, int]:
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
        "g_offset": g_offset(go.binary),
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
