"""Facts that Python shares with the C files: read from C as by a compiler, or equal in both."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from ebpfprof.goruntime.goroutines import labels, states
from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.waits import lock_uses
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.process.process import Target
from ebpfprof.profilers.cpu.bound import SampleBound
from ebpfprof.profilers.cpu.cpu_program import CpuProgram
from ebpfprof.profilers.cpu.cpu_recording import CpuRecording, process_fields
from ebpfprof.profilers.cpu.learner import Learner
from ebpfprof.profilers.cpu.unwinder import MAX_DEPTH, Ending, RuleNumbers
from ebpfprof.profilers.target_layout import target_fields
from ebpfprof.profilers.waits import collector as waits
from ebpfprof.profilers.waits import runtime_locks
from ebpfprof.profilers.waits.probe_sites import SiteTable
from ebpfprof.profilers.waits.rows import WaitsConfig
from ebpfprof.profilers.waits.tracking import tracking_fields
from symbolizer.codeanalysis.cgo_callback import CgoCallback
from symbolizer.codeanalysis.park_sites import probe_sites
from symbolizer.codeanalysis.runtime_locks import runtime_lock_sites
from symbolizer.codeanalysis.tracked_waits import tracked_wait_sites
from symbolizer.go.runtime_layout import layout_for
from symbolizer.go.version import GoVersion
from symbolizer.unwind.rules import RuleKind, UnwindRule
from tests.fuzz.minigo import real
from tests.toolchains import MINORS
from tests.unit.bpf.native import Native, build

if TYPE_CHECKING:
    from ebpfprof.kernel.program import BpfProgram

MACROS = {
    **{"WITH_KERNEL": 1, "WITH_LABELS": 1, "WITH_CHOSEN_LABELS": 0, "BY_LOCK": 0, "TARGETS": 1},
    **{
        "WITH_ALARM": 1,
        "WITH_EARLIER": 1,
        "WITH_ONE_IN_EIGHT": 1,
        "WITH_RUN_QUEUE": 1,
        "WITH_BLOCK": 1,
        "WITH_MUTEX": 1,
        "WITH_RUNTIME_LOCKS": 1,
    },
    **{"WITH_WAKERS": 1, "MAX_PAIRS": 1},
    **{
        "EVERY_EVENT": 1,
        "BLOCK_RATE_NS": 1,
        "MUTEX_FRACTION": 1,
        "COUNT_SHIFT": 16,
        "LOCK_CALLERS": 4,
        "MAX_CHOSEN_LABELS": 1,
    },
    **{"MAX_TARGETS": 1, "MAX_SITES": 1, "MAX_DEPTH": MAX_DEPTH, "MAX_LABEL_SETS": 1},
    **{"MAX_SAMPLES": 1, "MAX_LINES": 1, "MAX_RULES": 1, "RING_PAGES": 1, "MAX_WAITS": 1},
    **{"MAX_STACKS": 1, "MAX_LOCKS": 1, "MAX_SLEEPERS": 1, "MAX_LENGTHS": 1},
    **{"FS_BASE_OFFSET": 0, "MEMORY_OFFSET": 0},
    **{"SIGNAL_STACK_OFFSET": 0, "SIGNAL_STACK_BYTES_OFFSET": 0},
}
STRUCTS = {
    "cpu/cpu.bpf.c": ("unfinished", "process", "label_set"),
    "waits/waits.bpf.c": (
        *("target", "site", "wait", "seed", "stack", "total", "label_set"),
        *("tracking", "sampled", "source", "tracked", "spread", "lengths"),
    ),
}


def all_members(dtype: np.dtype[Any], path: str = "") -> Iterator[tuple[str, int]]:
    """All members of a struct, as C names them, and where they are."""
    for name, (inner, offset, *_) in (dtype.fields or {}).items():
        yield f"{path}{name}", int(offset)
        element = inner.subdtype[0] if inner.subdtype else inner
        index = "[0]" if inner.subdtype else ""
        for member, further in all_members(element, f"{path}{name}{index}."):
            yield member, int(offset) + further


@pytest.mark.machine
@pytest.mark.parametrize("program", STRUCTS)
def test_structs_are_laid_out_as_a_compiler_does(program: str, tmp_path: Path) -> None:
    output, expected = [], []
    for name in STRUCTS[program]:
        dtype = c_facts.struct(program, name, MACROS)
        found = dict(all_members(dtype))
        output += [f"sizeof(struct {name})"]
        output += [f"__builtin_offsetof(struct {name}, {member})" for member in found]
        expected += [dtype.itemsize, *found.values()]
    text = f'#include "{program}"\nstatic u64 all[] = {{{", ".join(output)}}};\n'
    native = Native(build(tmp_path, text + "u64 said(u64 index) { return all[index]; }", MACROS))
    assert [native.call("said", index) for index in range(len(output))] == expected


@pytest.mark.machine
@pytest.mark.parametrize(
    ("program", "numbers"),
    [
        (
            "cpu/cpu.bpf.c",
            {
                "COPY_BYTES": "cpu/partial_samples.h",
                "ASTRAY": "cpu/table_unwind.h",
                "MAX_CFA_BYTES": "cpu/table_unwind.h",
            },
        ),
        (
            "waits/waits.bpf.c",
            {
                "WOKEN": "waits/wait.h",
                "KIND_MUTEX": "probes/totals.h",
                "HASH_FACTOR": "common/keys.h",
            },
        ),
    ],
    ids=["cpu", "waits"],
)
def test_numbers_equal_those_of_a_compiler(
    program: str, numbers: dict[str, str], tmp_path: Path
) -> None:
    text = "".join(f"u64 get_{name}(void) {{ return {name}; }}\n" for name in numbers)
    native = Native(build(tmp_path, f'#include "{program}"\n{text}', MACROS))
    compiled = {name: native.call(f"get_{name}") for name in numbers}
    assert compiled == {name: c_facts.number(path, name) for name, path in numbers.items()}


def test_unknown_names_and_conditional_structs_are_errors() -> None:
    with pytest.raises(KeyError, match=r"bpf/common/keys\.h has no number NOTHING"):
        c_facts.number("common/keys.h", "NOTHING")
    with pytest.raises(KeyError):
        c_facts.struct("common/keys.h", "nothing")
    with pytest.raises(ValueError, match="struct lock has more than plain members: #if WITH_ONE"):
        c_facts.struct("waits/locks.h", "lock")


@pytest.mark.parametrize(("members", "name"), [(Ending, "ending"), (RuleKind, "kind")])
def test_enums_of_python_have_the_numbers_of_the_c(members: type[IntEnum], name: str) -> None:
    ours = {member.name: member.value for member in members}
    assert ours == c_facts.enum("cpu/table_unwind.h", name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_LABELS", labels._MAX_LABELS),
        ("LABEL_KEY_ROOM", labels._KEY_ROOM),
        ("LABEL_VALUE_ROOM", labels._VALUE_ROOM),
        ("MAX_LABEL_STEPS", labels._MAX_STEPS),
        ("MAX_LABEL_COUNT", labels._MAX_COUNT),
        ("BUCKET_SLOTS", labels._BUCKET_SLOTS),
        ("BUCKET_BYTES", labels._BUCKET_BYTES),
        ("MIN_TOP_HASH", labels._MIN_TOP_HASH),
    ],
)
def test_goruntime_reads_labels_by_the_numbers_of_the_c(name: str, value: int) -> None:
    assert c_facts.number("common/labels.h", name) == value


def test_goruntime_walks_stacks_by_the_numbers_of_the_c() -> None:
    assert c_facts.number("probes/goroutine_stack.h", "G_SCAN") == states.SCAN


@pytest.mark.parametrize("minor", MINORS)
def test_runtime_g_offsets_in_c_hold_for_every_go_version(minor: str) -> None:
    layout = layout_for(GoVersion.parse(f"go{minor}"))
    for path, name, field in (
        ("probes/goroutine_stack.h", "G_SCHED_PC", "sched.pc"),
        ("waits/runtime_locks.h", "G_SCHED_SP", "sched.sp"),
    ):
        assert c_facts.number(path, name) == layout.offset("g", field)


def test_registers_have_the_order_of_struct_pt_regs() -> None:
    names = c_facts.struct("headers/include/linux/types.h", "pt_regs").names or ()
    ours = [re.sub("^r(?=[a-z])", "", name) for name in runtime_locks._REGISTERS]
    assert list(names[: len(ours)]) == ours


class Elements:
    """Stands for a BPF program: keeps the fields that a collector sets."""

    def __init__(self) -> None:
        self.fields: Mapping[str, Any] = {}
        self.arguments: tuple[int, ...] = ()

    @property
    def maps(self) -> defaultdict[str, Elements]:
        return defaultdict(lambda: self)

    def set_struct(self, index: int, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def run(self, function: str, *arguments: int) -> None:
        self.arguments = arguments


def names(path: str, struct: str, *unset: str) -> set[str]:
    """The fields of a struct, but for those that only the C sets."""
    found = set(c_facts.struct(path, struct, MACROS).names or ())
    assert set(unset) <= found
    return found - set(unset)


@pytest.fixture(scope="module")
def go() -> Iterator[GoTarget]:
    binary = real("frames")
    callback, runtime = CgoCallback(1, 2, 3, 4, 5), runtime_lock_sites(binary)
    target = Target(os.getpid())
    yield GoTarget(target, "", binary, 0, (), probe_sites(binary), callback, runtime, None)
    target.close()


@pytest.mark.machine
def test_the_waits_collector_fills_every_field_of_a_target(go: GoTarget) -> None:
    reported, collector = Elements(), waits.WaitsCollector.__new__(waits.WaitsCollector)
    collector._program = reported  # type: ignore[assignment]  # stands for it
    collector._config = WaitsConfig(block=True, mutex=True)
    collector._attached = {3: waits.AttachedTarget(go, target_fields(go, has_labels=True))}
    collector.record_from(3, 1)
    assert reported.fields.keys() == names("probes/target.h", "target")
    assert reported.fields["callback"].keys() == names("probes/target.h", "callback", "none")
    sites = SiteTable(cast("BpfProgram", reported), collector._config)
    sites._probe(3, go.probed[0], "on_wait", go.sites.wake_pc)
    assert reported.fields.keys() == names("probes/target.h", "site")
    tracking = tracking_fields(go, tracked_wait_sites(go.binary))
    assert tracking.keys() == names("waits/one_in_eight.h", "tracking")
    fields = runtime_locks.layout_fields(go)
    assert fields.keys() == names("waits/runtime_locks.h", "runtime_layout")

    assert go.sites.semaphores
    caller = go.sites.semaphores.lock_callers[0]
    collector.seed(3, ParkedGoroutine(4, 5, "", (6, caller), 7))
    seed = c_facts.struct("waits/waits.bpf.c", "seed")
    assert dict(zip(seed.names or (), reported.arguments, strict=True)) == {
        **{"target": 3, "g": 4, "return_pc": 6, "sema": 7, "is_semaphore": 1}
    }
    assert {seed[name] for name in seed.names or ()} == {np.dtype("<u8")}


@pytest.mark.machine
def test_the_cpu_collector_fills_every_field_of_processes_and_rules(go: GoTarget) -> None:
    reported, sampling = Elements(), CpuProgram.__new__(CpuProgram)
    sampling._program = reported  # type: ignore[assignment]  # stands for it
    recording = CpuRecording.__new__(CpuRecording)
    recording.slot, recording._program = 3, sampling
    recording._fields, recording._bound = process_fields(go.target, go), SampleBound()
    recording._describe(active=True)
    assert reported.fields.keys() == names("cpu/cpu.bpf.c", "process", "memory")
    learner = Learner.__new__(Learner)
    learner._program = cast("BpfProgram", reported)
    learner._numbers, learner._installed_rules, learner._rules = RuleNumbers(4), 1, {}
    learner._numbers.of(UnwindRule(RuleKind.END))
    learner.install()
    assert reported.fields.keys() == names("cpu/table_unwind.h", "rule")


def test_semaphore_distances_of_a_rwmutex_are_equal_in_c_and_python() -> None:
    (_, mutex), (_, writer) = lock_uses._IN_MUTEX, lock_uses._IN_WRITER_SEM
    assert c_facts.number("waits/locks.h", "WRITER_SEM_OFFSET") == writer - mutex


def test_losses_that_python_counts_are_in_losses_h() -> None:
    assert {"labels_unreadable", "samples_full"} <= dict(loss_kinds()).keys()
