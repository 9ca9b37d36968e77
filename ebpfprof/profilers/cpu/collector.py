"""CPU stacks: samplers on all processors; sums by stack out of the maps; rules into them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ebpfprof.goruntime.labels import target_fields as label_fields
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.btf import field_offsets
from ebpfprof.kernel.losses import Loss, losses
from ebpfprof.kernel.program import Program
from ebpfprof.overhead.budget import samples_to_take
from ebpfprof.overhead.cost import Runs, runs
from ebpfprof.profilers import labels
from ebpfprof.profilers.cpu.partial_samples import (
    LARGE_BYTES,
    TargetPlaces,
    Unfinished,
    ring_bytes_for,
)
from ebpfprof.profilers.cpu.sample_table import CpuStack, SampleSums, SampleTable, rows_for
from ebpfprof.profilers.cpu.samplers import Samplers, online_cpus
from ebpfprof.profilers.cpu.unwinder import MAX_DEPTH, Ending, RuleBook, RuleNumbers
from ebpfprof.profilers.label_pages import AbsentLabels
from ebpfprof.profilers.options import Options
from symbolizer.codeanalysis.tls import g_offset

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.mappings import Objects
    from ebpfprof.process.process import Target

_FUNCTION: Final = "on_sample"
_MAX_LINES = 1 << 16  # 64 bytes of code each: 4 MB of code that is run
_MAX_RULES = 1 << 14
_LARGE_MAPS = ("MAX_SAMPLES", "MAX_LABEL_SETS", "MAX_LINES", "MAX_RULES", "RING_PAGES")
_LOOK_S = 0.2  # at the table of samples, and at labels that are wanted
_SELDOM_S = 1.0  # at processors, and at what the targets have mapped, once nothing new comes
_LIVELY_S = 3.0
_TICK_S = 0.25
_LEARNING_TICK_S = 0.02
_LEAST_USED_NS = 100_000_000  # by a target, before what its samples cost is looked at
_BATCH = 32  # samples that are finished before their rules go to the kernel
_MAX_BATCHES = 128
_MAX_WAITING = 256  # samples of up to 70 KB
_UNSAMPLED = "processors that came while it recorded and could not be sampled"
_RULES_FULL = "processes of which not all rules for unwinding had room: stacks may be cut short"
_TARGET_SHIFT = c_facts.number("common/keys.h", "TARGET_SHIFT")


@dataclass(frozen=True, slots=True)
class CpuRecipe:
    """How to sample: how often a second of CPU time, and what else than user stacks."""

    hz: int = 99
    kernel: bool = True
    labels: bool = True
    label_keys: tuple[int, ...] = ()
    """Hashes of the keys of those that are wanted (labels.key_hashes); (): all are."""
    max_share: float = 0.0
    """What sampling may take of a target's CPU time, 0 to 1; 0: whatever it takes."""

    @classmethod
    def of(cls, options: Options) -> Self:
        """What the samplers are to record for these options."""
        # Where waits are recorded, too, half of the bound is theirs whatever sampling takes.
        max_share = options.max_overhead / (200 if options.waiting else 100)
        keys = labels.key_hashes(options.labels)
        return cls(options.hz, options.kernel, options.labels != (), keys, max_share)


class CpuCollector:
    """The program, loaded once, with the rules of any number of targets."""

    def __init__(self, targets: int, recipe: CpuRecipe) -> None:
        """Begin to compile for up to so many targets; load() ends that.

        Raises what Program and field_offsets do.
        """
        thread, fs_base, memory = field_offsets(
            ("task_struct", "thread"), ("thread_struct", "fsbase"), ("task_struct", "mm")
        )
        self._recipe = recipe
        self._fields: dict[int, dict[str, int]] = {}
        self._is_active: dict[int, bool] = {}
        self._books: dict[int, RuleBook] = {}
        self._objects: dict[int, Objects] = {}
        self._targets: dict[int, Target] = {}
        self._costs: dict[int, tuple[float, int]] = {}  # ours and the target's CPU time, ns
        self._looked_s = self._looked_around_s = 0.0
        self._lively_until_s = 0.0
        self._is_learning = True
        self._numbers = RuleNumbers(_MAX_RULES)
        self._installed_rules = 1
        self._waiting: list[bytes] = []  # for the next look at what is mapped
        self._samplers: Samplers | None = None
        self._sampler = ""
        self._unsampled = 0
        self.failure: Exception | None = None
        """Why stacks are not whole that could have been, if there was an error."""
        self._program = Program(
            "cpu/cpu.bpf.c",
            {
                "WITH_KERNEL": int(recipe.kernel),
                "WITH_LABELS": int(recipe.labels),
                **labels.macros(recipe.label_keys),
                # BCC makes maps, too, which nobody uses: those that are large come with load().
                **dict.fromkeys(_LARGE_MAPS, 1),
                "MAX_TARGETS": targets,
                "MAX_DEPTH": MAX_DEPTH,
                "FS_BASE_OFFSET": thread + fs_base,
                "MEMORY_OFFSET": memory,
            },
            functions=(),
            perf_functions=(_FUNCTION,),
        )
        self._absent_labels = AbsentLabels(self._program)

    def load(self) -> None:
        """Make the maps and load the program, which takes nothing yet. Raises what Program does."""
        hz, processors = self._recipe.hz, len(online_cpus())
        rows, ring_bytes = rows_for(hz, processors), ring_bytes_for(hz * processors * _TICK_S)
        self._ring_room = ring_bytes // LARGE_BYTES // 2
        self._program.load(
            {
                "samples": rows,
                "label_sets": labels.MAX_LABEL_SETS,
                "lines": _MAX_LINES,
                "rules": _MAX_RULES,
                "unlearned": ring_bytes,
            },
            grows=frozenset({"lines"}),
        )
        labels.choose(self._program, self._recipe.label_keys)
        self._unlearned = self._program.ring_buffer("unlearned")
        self._table = SampleTable(self._program, rows, has_labels=self._recipe.labels)

    def attach(self, index: int, target: Target, objects: Objects, go: GoTarget | None) -> None:
        """Make a target number `index`. It is sampled as soon as the samplers are started.

        Raises TargetGone if it has ended.
        """
        self._fields[index] = _process_fields(target, go)
        self._objects[index] = objects
        self._targets[index] = target
        self._books[index] = RuleBook(TargetPlaces(objects, go), self._numbers)
        self._is_learning = True
        self._lively_until_s = time.monotonic() + _LIVELY_S
        self._describe(index, active=True)

    def start(self) -> None:
        """Start the samplers. Raises AttachFailed or PermissionDenied."""
        self._samplers = Samplers(self._program, _FUNCTION, self._recipe.hz)
        self._samplers.enable()
        self._sampler = self._samplers.kind

    def sampler(self, index: int) -> str:
        """By what a target was sampled, "cpu-clock" or "ref-cycles", and which part of it."""
        one_in = self._fields[index]["one_in"] if index in self._fields else 1
        thinned = f", in the end one sample in {one_in}, by chance, to keep to --max-overhead"
        return self._sampler + (thinned if one_in > 1 else "")

    @property
    def tick_s(self) -> float:
        """How long to wait until the next poll(), in s: samples may take all their room by then.

        Few do once the kernel has learnt, and each poll takes the target's processors, too.
        """
        samplers = self._samplers  # another thread may close them
        if self._is_learning or not samplers:
            return _LEARNING_TICK_S
        a_second = self._recipe.hz * max(1, len(samplers.cpus))
        return min(_TICK_S, max(_LEARNING_TICK_S, self._ring_room / a_second))

    def poll(self) -> None:
        """Finish the samples that the kernel could not unwind, and teach it how to.

        To be called every `tick_s` while it records. What goes wrong is kept in `failure`: whatever
        it is, the samples and all other profiles are worth more.
        """
        self._is_learning = False
        try:
            now_s = time.monotonic()
            if now_s >= self._looked_s + _LOOK_S:
                self._looked_s = now_s
                self._table.look()
                if self._recipe.labels:
                    self._absent_labels.bring(self._targets)
                is_lively = self._waiting or now_s < self._lively_until_s
                if is_lively or now_s >= self._looked_around_s + _SELDOM_S:
                    self._look()
                self._keep_to_the_bound()
            # The sooner the kernel knows the rules, the less comes meanwhile.
            for _ in range(_MAX_BATCHES):
                records = self._unlearned.consume(_BATCH)
                self._is_learning |= bool(records)
                for record in records:
                    if not self._finish(record, may_wait=len(self._waiting) < _MAX_WAITING):
                        self._waiting.append(record)
                self._install()
                if len(records) < _BATCH:
                    break
        except Exception as error:
            self.failure = self.failure or error

    def stop(self) -> None:
        """End the recording of all targets at once."""
        for index in self._books:
            self._describe(index, active=False)

    def pause(self, index: int) -> None:
        """Sample a target no more until resume(); the last samples are finished before."""
        self._describe(index, active=False)
        self._settle()

    def resume(self, index: int) -> None:
        """Sample a target again."""
        self._describe(index, active=True)

    def forget(self, index: int) -> None:
        """Forget all of a target that is sampled no more; another may be number `index` then."""
        if index not in self._books:
            return
        self._settle()
        key_type, _ = self._program.hash_types("lines")
        lines = np.array(sorted(self._books[index].lines), key_type)
        self._program.delete_rows("lines", lines ^ np.uint64(index << _TARGET_SHIFT))
        self._table.forget(index)
        for kept in (self._books, self._objects, self._fields, self._targets, self._is_active):
            del kept[index]
        self._costs.pop(index, None)

    def halt(self) -> None:
        """Close the samplers until the next start(), of which there may be any number."""
        self._settle()
        if self._samplers:
            self._samplers.close()
            self._samplers = None

    def detach(self) -> None:
        """Close the samplers; the sums stay readable."""
        self._settle()
        if self._samplers:
            self._samplers.close()
            self._samplers = None
        self._program.detach()

    def begin_sums(self, index: int) -> SampleSums:
        """Add up the samples of a target from now on, for as long as the caller keeps the sums."""
        return self._table.begin(index)

    def read_sums(self, sums: SampleSums, *, restart: bool = False) -> Mapping[CpuStack, int]:
        """How many samples each stack has since the sums began; they begin anew if `restart`."""
        return self._table.read(sums, restart=restart)

    def runs(self, index: int) -> Runs:
        """What the samples of a target cost so far, but for the interrupts."""
        cost = self._program.read_per_cpu("costs", index)
        return runs(cost["runs"], cost["timed"], cost["timed_ns"])

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all targets together."""
        more = {"samples_full": self._table.lost}
        found = list(losses(self._program.read_array("losses"), more))
        if self._unsampled:
            found.append(Loss("cpus_unsampled", _UNSAMPLED, self._unsampled))
        full = sum(book.is_full for book in self._books.values())
        if full:
            found.append(Loss("rules_full", _RULES_FULL, full))
        return found

    def close(self) -> None:
        """Close the samplers and free the maps."""
        if self._samplers:
            self._samplers.close()
            self._samplers = None
        self._absent_labels.close()
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self, index: int, *, active: bool) -> None:
        self._is_active[index] = active
        fields = {**self._fields[index], "active": int(active)}
        self._program.set_element("processes", index, fields)

    def _look(self) -> None:
        """Look which processors there are and what is mapped, and finish what waits for that."""
        self._looked_around_s = time.monotonic()
        if self._samplers:
            self._samplers.refresh()
            self._unsampled = len(self._samplers.unsampled)
        for objects in self._objects.values():
            objects.refresh()
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            self._finish(record, may_wait=False)

    def _keep_to_the_bound(self) -> None:
        """Of targets whose samples cost too much, take one of several by chance."""
        if not self._recipe.max_share:
            return
        for index, target in self._targets.items():
            used_ns = target.cpu_ns()
            if used_ns is None:
                continue
            run = self.runs(index)
            spent_before_ns, used_before_ns = self._costs.setdefault(index, (run.ns, used_ns))
            if used_ns - used_before_ns < _LEAST_USED_NS:
                continue
            self._costs[index] = run.ns, used_ns
            spent_ns, used_ns = run.ns - spent_before_ns, used_ns - used_before_ns
            one_in = self._fields[index]["one_in"]
            wanted = samples_to_take(one_in, spent_ns, used_ns, self._recipe.max_share)
            if wanted > one_in and self._is_active[index]:
                self._fields[index]["one_in"] = wanted
                self._describe(index, active=True)

    def _settle(self) -> None:
        """Finish all samples that there are."""
        self.poll()
        if self._waiting:
            try:
                self._look()
            except Exception as error:  # see poll
                self.failure = self.failure or error

    def _finish(self, packed: bytes, *, may_wait: bool) -> bool:
        """Unwind a sample to its end; or return False if code was met that is not known yet.

        Such as that of a library which was loaded after the last look at what is mapped.
        """
        sample = Unfinished.parse(packed)
        book = self._books.get(sample.process)
        if book is None:
            return True  # it was let go of while this was on its way
        book.has_met_unmapped = False
        pcs, ending = sample.pcs, Ending.UNLEARNED
        try:
            pcs, ending = sample.finish(book)
        except Exception as error:  # see poll
            self.failure = self.failure or error
        if may_wait and book.has_met_unmapped and ending is not Ending.WHOLE:
            return False
        stack = CpuStack(sample.kernel_pcs, pcs, ending)
        self._table.add(sample.process, stack, sample.labels, sample.count)
        return True

    def _install(self) -> None:
        """Put the rules that are new into the kernel's maps; first those that lines refer to."""
        rules = self._numbers.rules
        for number in range(self._installed_rules, len(rules)):
            rule = rules[number]
            fields = {
                "cfa_offset": rule.cfa_offset,
                "bp_offset": rule.bp_offset or 0,
                "kind": rule.kind.value,
                "exact_caller": int(rule.exact_caller),
            }
            self._program.set_element("rules", number, fields)
        self._installed_rules = len(rules)
        for index, book in self._books.items():
            if not book.new_lines:
                continue
            key_type, value_type = self._program.hash_types("lines")
            keys = np.array(sorted(book.new_lines), key_type)
            values = np.zeros(len(keys), value_type)
            values["rules"] = [book.lines[int(key)] for key in keys]
            self._program.update_hash("lines", keys ^ np.uint64(index << _TARGET_SHIFT), values)
            book.new_lines.clear()


def _process_fields(target: Target, go: GoTarget | None) -> dict[str, int]:
    """struct process of bpf/cpu/cpu.bpf.c, but for `active`."""
    device, inode = target.pid_namespace()
    fields = {
        "namespace_device": device,
        "namespace_inode": inode,
        "tgid": target.innermost_pid(),
        "one_in": 1,
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
