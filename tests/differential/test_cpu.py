"""The CPU profile from outside against the one that Go writes itself, in the same run.

Go's profile is taken at 100 samples a second: its timers run out at the kernel's ticks, and at
higher rates Go loses samples. At 100 a run has about 350 of them, and a share of a twentieth a
standard deviation of 1.2 points: where shares differ, the samples of further runs are added. Those
of ten runs leave 0.4 points, of which the limit is seven times as much.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.builds import BUILDS, NEWEST, VERSIONS, builds, in_full, versions
from tests.differential.cpustacks import (
    MARK,
    NOT_LEARNT,
    Calls,
    Stack,
    comparable,
    share_differences,
    strange_pairs,
    without_room,
)
from tests.differential.framepointers import bpftrace_recording, perf_recording
from tests.recorder import recording
from tests.targets_run import SLOWNESS, Target
from tests.toolchains import toolchain, toolchains

CPUOPS = Path(__file__).parent.parent / "targets" / "cpuops"
OUR_HZ: Final = 999
GO_HZ: Final = 100
SHARE_LIMIT: Final = 0.03
# For which the samples of one run are usually enough.
FEW_RUNS_LIMIT: Final = 0.05
SHARE_RUNS: Final = 10
TOTAL_LIMIT: Final = 0.03
# In a second or so: while the hypervisor runs other guests, time passes and no timer fires.
# An emulator that waits for its own processor can't say so: what is compared there is the stacks.
SHORT_TOTAL_LIMIT: Final = 0.06 if SLOWNESS == 1 else 0.5
# The works with assembly that stay in one thread and make no garbage, and where their time goes:
# functions that are called directly.
ASSEMBLY: Final = {
    "copyBlocks": r"runtime\.memmove",
    "findByte": r"indexbytebody",
    "sumSHA256": r"crypto/.*sha256\.block.*",
    "sumCRC32": r"hash/crc32\.ieeeCLMUL",
    "sumMD5": r"crypto/md5\.block",
    "multiply": r"math/big\.(addMul|mulAdd|mulAddAdd)VV?W+",
    "askKernel": r"syscall\.rawSyscallNoError|.*internal/(runtime/)?syscall.*\.Syscall6",
}
# With which the target looks whether a work has had its time.
CPU_TIME: Final = "ebpfprof.test/harness.CPUTime"
# Go cuts stacks off after 64 frames: they are for a test of their own.
SHALLOW: Final = "^[^d]"
DEEP: Final = "^deep"
OTHER_BUILDS: Final = tuple(build for build in BUILDS if build[1] != "plain")
# 19 works: 3.4 s of CPU time; with SHORT_MS, 1 s.
WORK_MS: Final = 180
# Where a processor is emulated, learning a function takes longer than the next sample: so as many
# samples of a longer time.
_STRETCHED: Final = round(min(SLOWNESS, 10))
SHORT_MS: Final = 60 * _STRETCHED
# What a work itself uses of its time: the collector, sysmon and the clock take the rest.
WORK_LIMIT: Final = 0.06
LOST_PART: Final = 0.003
# What is noise is not there in one run or other; what is not, in all.
RUNS: Final = 3
# All three sample at once, in works that lose callers all the time.
LOSING_MS: Final = 200
DEEP_MS: Final = 200
OUR_MAX_FRAMES: Final = 128
GO_MAX_FRAMES: Final = 64
CUT: Final = "[cut off: 128 frames]"


@dataclass(frozen=True)
class Run:
    """Both profiles of some works, and the CPU time that the system says they took."""

    go: list[Stack]
    ours: list[Stack]
    our_profile: Profile
    cpu_ns: int
    works_ns: dict[str, int]
    stolen_part: float
    """What the hypervisor took meanwhile, of all processors, by the CPU time of the works: a timer
    sees it, the system's accounts don't."""

    @property
    def our_ns(self) -> int:
        return sum(sample.values[1] for sample in self.our_profile.samples)


def record(program: Path, folder: Path, works: str, work_ms: int, *, hz: int = OUR_HZ) -> Run:
    own, from_outside = folder / "go.prof", folder / "ours.pb.gz"
    arguments = (
        *("--profile", "cpu", "--hz", str(hz), "--no-kernel"),
        *("-o", str(from_outside), "--force"),  # again, if the first time was noisy
    )
    with Target.start(program) as target:
        with recording(target.pid, folder, *arguments) as recorder:
            target.ask(f"profile {own} {GO_HZ}", "profiling")
            stolen_before_ns = stolen_ns()
            output = json.loads(target.ask(f"work {works} {work_ms}", "{"))
            stolen_part = (stolen_ns() - stolen_before_ns) / output["cpu_ns"]
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        target.ask("stop", "stopped")
    go = pprof.decode(own.read_bytes(), kind="cpu")
    ours = pprof.decode(from_outside.read_bytes(), kind="cpu")
    return Run(
        comparable(go), comparable(ours), ours, output["cpu_ns"], output["works"], stolen_part
    )


def stolen_ns() -> int:
    """How long the hypervisor ran other guests while a processor had work, since boot."""
    line = Path("/proc/stat").read_text().splitlines()[0]
    return int(line.split()[8]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def check_stacks(run: Run, program: Path) -> None:
    """What must be true of every sample."""
    with Calls(program, run.our_profile.mappings[0]) as calls:
        leaves = {stack.functions[0] for stack in run.ours}
        exact = {leaf for leaf in leaves if any(is_in(leaf, w) for w in ASSEMBLY.values())}
        assert strange_pairs(run.go, run.ours, calls, exact=exact) == []
    incomplete = [stack for stack in run.ours if is_incomplete(stack)]
    of_works = [stack for stack in incomplete if is_of_work(stack)]
    not_learnt = [stack for stack in of_works if stack.functions[-1] == NOT_LEARNT]
    assert [stack.functions for stack in of_works if stack not in not_learnt] == []
    room_lacked = without_room(run.our_profile)
    if not room_lacked:
        assert [stack.functions for stack in not_learnt] == []
    assert sum(s.count for s in not_learnt) <= room_lacked
    # Of the runtime's own threads a few may be caught where they start and end.
    limit = room_lacked + LOST_PART * sum(s.count for s in run.ours)
    assert sum(s.count for s in incomplete) <= limit, [s.functions for s in incomplete]
    assert [s.functions for s in run.ours if lacks_work(s.functions, run.works_ns)] == []
    for name, functions in ASSEMBLY.items():
        # Those that are not learnt were held to be few, or under a signal.
        leading = [s for s in run.ours if leads_to(s, name)]
        inside = [s for s in leading if s.functions[-1] != NOT_LEARNT]
        found = [(s.count, s.functions) for s in leading]
        assert sum(s.count for s in inside if is_in(s.functions[0], functions)) > 0, (name, found)
        assert {tuple(s.functions[-2:]) for s in inside} == {("main.main", "runtime.main")}, name


def is_incomplete(stack: Stack) -> bool:
    """Whether it ends with a remark that something is missing.

    Until the kernel has learnt all rules, it can't decide which stack a signal came to.
    """
    return stack.functions[-1].startswith(MARK) and not stack.in_handler


def is_of_work(stack: Stack) -> bool:
    """Whether a work itself was interrupted, by any frame of it."""
    functions = stack.functions
    of_main = any(function.startswith("main.") for function in functions)
    return of_main or any(is_in(functions[0], leaf) for leaf in ASSEMBLY.values())


def lacks_work(functions: Sequence[str], works: Iterable[str]) -> bool:
    """Whether a stack leads to main.perform past the function that this called."""
    if "main.perform" not in functions[1:] or CPU_TIME in functions:
        return False
    return not any(is_function(function, work) for function in functions for work in works)


def leads_to(stack: Stack, work: str) -> bool:
    return any(is_function(function, work) for function in stack.functions)


def is_in(function: str, expression: str) -> bool:
    return re.fullmatch(expression, function) is not None


def is_function(name: str, work: str) -> bool:
    """Whether it is the function main.WORK or a closure in it."""
    return re.fullmatch(rf"main\.{work}(\..*)?", name) is not None


def total_differences(run: Run, limit: float) -> list[str]:
    """Whether our CPU time is another one than the system's."""
    if run.our_ns == pytest.approx(run.cpu_ns, rel=limit + run.stolen_part):
        return []
    return [f"{run.our_ns} ns in all, not {run.cpu_ns}; stolen: {run.stolen_part:.1%}"]


def work_differences(run: Run) -> list[str]:
    """The works of which our CPU time is another one than they took by their own clock."""
    limit = WORK_LIMIT + 2 * run.stolen_part  # it comes in bursts
    found = []
    for work in ASSEMBLY:
        samples = sum(stack.count for stack in run.ours if leads_to(stack, work))
        if samples / OUR_HZ != pytest.approx(run.works_ns[work] / 1e9, rel=limit):
            found.append(f"{work}: {samples} samples in {run.works_ns[work]} ns")
    return found


def test_versions_are_those_of_the_toolchains() -> None:
    assert {version for version, _ in BUILDS} == set(VERSIONS) == set(toolchains())


@pytest.mark.parametrize(
    ("version", "limit"),
    [(NEWEST, FEW_RUNS_LIMIT), *in_full(*((version, SHARE_LIMIT) for version in VERSIONS))],
)
def test_cpu_times_equal_gos(version: str, limit: float, tmp_path: Path) -> None:
    program = toolchain(version).build(CPUOPS)
    go: list[Stack] = []
    ours: list[Stack] = []
    noisy = differences = ["no run"]
    for _ in range(SHARE_RUNS):
        run = record(program, tmp_path, SHALLOW, WORK_MS)
        check_stacks(run, program)
        go, ours = go + run.go, ours + run.ours
        noisy = noisy and [*total_differences(run, TOTAL_LIMIT), *work_differences(run)]
        differences = share_differences(go, ours, limit)
        if not noisy and not differences:
            break
    assert noisy == []
    assert differences == []


@pytest.mark.full
@pytest.mark.parametrize(("version", "mode"), builds(*OTHER_BUILDS))
def test_stacks_equal_gos_in_every_build_mode(version: str, mode: str, tmp_path: Path) -> None:
    program = toolchain(version).build(CPUOPS, mode)
    for _ in range(RUNS):
        run = record(program, tmp_path, SHALLOW, SHORT_MS, hz=OUR_HZ // _STRETCHED)
        check_stacks(run, program)
        differences = total_differences(run, SHORT_TOTAL_LIMIT)
        if not differences:
            break
    assert differences == []


@pytest.mark.parametrize("version", versions("1.19", "1.22", "1.27"))
def test_stacks_are_deeper_than_gos(version: str, tmp_path: Path) -> None:
    """Go cuts stacks after 64 frames; ours have a hundred, and are marked as cut beyond 128."""
    program = toolchain(version).build(CPUOPS)
    for _ in range(RUNS):
        run = record(program, tmp_path, DEEP, DEEP_MS)
        whole, cut = check_deep_stacks(run)
        enough = [0.9 * run.works_ns[work] / 1e9 * OUR_HZ for work in ("deep100", "deep200")]
        if whole > enough[0] and cut > enough[1]:
            break
    assert whole > enough[0]
    assert cut > enough[1]


def check_deep_stacks(run: Run) -> tuple[int, int]:
    """What must be true of every sample; how many are whole and how many have over 128 frames."""
    theirs = [s.functions for s in run.go if "main.descend" in s.functions]
    assert theirs
    assert max(map(len, theirs)) <= GO_MAX_FRAMES
    deep = [stack for stack in run.ours if "main.descend" in stack.functions]
    not_learnt = [stack for stack in deep if stack.functions[-1] == NOT_LEARNT]
    found = sum(stack.count for stack in not_learnt if not stack.in_handler)
    assert found <= without_room(run.our_profile)
    whole, cut = [], []
    for stack in deep:
        is_whole = stack.functions[-1] == "runtime.main"  # on its way down it may be
        if stack.functions.count("main.descend") > 101 and not is_whole:
            cut.append(stack)
        elif stack not in not_learnt:
            whole.append(stack)
    assert {s.functions[-1] for s in cut} == {CUT}
    assert {len(s.functions) for s in cut if not s.in_handler} == {OUR_MAX_FRAMES + 1}
    assert all(len(s.functions) <= OUR_MAX_FRAMES for s in cut if s.in_handler)
    assert {s.functions[-1] for s in whole} == {"runtime.main"}
    assert all(len(s.functions) <= OUR_MAX_FRAMES for s in whole)
    assert all({"main.deep100", "main.deep200"}.intersection(s.functions) for s in whole)
    return sum(s.count for s in whole), sum(s.count for s in cut)


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.19", "1.27"))
def test_stacks_have_the_callers_that_frame_pointers_lose(version: str, tmp_path: Path) -> None:
    """perf and bpftrace walk frame pointers; a function without a frame has none of its own."""
    program = toolchain(version).build(CPUOPS)
    works, file = f"^({'|'.join(ASSEMBLY)})$", tmp_path / "ours.pb.gz"
    arguments = ("--profile", "cpu", "--hz", str(OUR_HZ), "--no-kernel", "-o", str(file))
    with Target.start(program) as target:
        with (
            recording(target.pid, tmp_path, *arguments) as recorder,
            perf_recording(target.pid, tmp_path, OUR_HZ) as by_perf,
            bpftrace_recording(target.pid) as by_bpftrace,
        ):
            target.ask(f"work {works} {LOSING_MS}", "{")
            recorder.interrupt()
            assert recorder.finish().code == 0
        ours = comparable(pprof.decode(file.read_bytes(), kind="cpu"))
    mine = [(stack.functions, stack.count) for stack in ours]

    lost = {
        name: sum(count for functions, count in stacks if lacks_work(functions, ASSEMBLY))
        for name, stacks in {"we": mine, "perf": by_perf, "bpftrace": by_bpftrace}.items()
    }
    assert sum(count for _, count in mine) > len(ASSEMBLY) * LOSING_MS / 1000 * OUR_HZ * 0.9
    assert lost["we"] == 0
    assert lost["perf"] > 0
    assert lost["bpftrace"] > 0
