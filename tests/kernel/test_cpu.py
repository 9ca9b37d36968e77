"""`ebpfprof attach` and the CPU profile: what is sampled, where it is written, what is refused."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.console.text import in_one_line
from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.overhead.process_budget import ProcessBudget
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.cpu.cpu_program import CpuConfig
from ebpfprof.profilers.cpu.cpu_recording import CpuProfiler
from ebpfprof.profilers.cpu.sample_table import CpuStack
from ebpfprof.profilers.cpu.unwinder import Ending
from ebpfprof.profilers.recording import OpenedProcess
from tests.builds import in_full, versions
from tests.go_target import inspect
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.programs import program
from tests.kernel.refusal import refused
from tests.kernel.samplerprogram import online_now
from tests.recorder import DEADLINE_S, names_in, only_profile, run
from tests.targets_run import Target

KPTR_RESTRICT = Path("/proc/sys/kernel/kptr_restrict")
YES = Path("/usr/bin/yes")


@contextmanager
def busy() -> Iterator[int]:
    """A program that is not Go's and writes all the time; its pid."""
    process = subprocess.Popen([YES], stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def checker() -> Iterator[Target]:
    """A Go program that is never idle."""
    with Target.start(program("checker")) as running:
        yield running


def functions(profile: Profile) -> set[str]:
    return {
        frame.function
        for sample in profile.samples
        for location in sample.locations
        for frame in location.frames
    }


def test_by_default_all_three_profiles_are_written(checker: Target, tmp_path: Path) -> None:
    pid = checker.pid
    finished = run("--pid", str(pid), "-d", "0.4", "--profile", "default", folder=tmp_path)
    assert finished.code == 0, finished.stderr
    assert finished.stderr.startswith("recording block, mutex and cpu of process")
    profiles = {
        kind: pprof.decode(path.read_bytes())
        for kind in ("block", "mutex", "cpu")
        for path in tmp_path.glob(f"checker-{pid}-*.{kind}.pb.gz")
    }
    assert len(list(tmp_path.iterdir())) == 3
    assert "sync.(*Mutex).Lock" in functions(profiles["block"])
    assert "sync.(*Mutex).Unlock" in functions(profiles["mutex"])
    assert any(name.startswith("main.") for name in functions(profiles["cpu"]))
    types = [(each.type, each.unit) for each in profiles["cpu"].sample_types]
    assert types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert profiles["cpu"].period == 1_000_000_000 // 99
    assert checker.ask("check", "ok")
    # Where a probe stands, the processor is in the kernel with a breakpoint behind it.
    at_probes = samples_with(profiles["cpu"], "runtime.ready")
    unknown = samples_with(profiles["cpu"], "[cut off: caller unknown]")
    assert at_probes
    assert unknown == 0, stacks_with(profiles["cpu"], "[cut off: caller unknown]")


def stacks_with(profile: Profile, function: str) -> list[list[str]]:
    """The stacks with a function, innermost first."""
    stacks = [
        [frame.function for location in sample.locations for frame in location.frames]
        for sample in profile.samples
    ]
    return [stack for stack in stacks if function in stack]


def samples_with(profile: Profile, function: str) -> int:
    return sum(
        sample.values[0]
        for sample in profile.samples
        if any(
            frame.function == function for location in sample.locations for frame in location.frames
        )
    )


def test_a_program_that_is_not_go_has_a_cpu_profile(tmp_path: Path) -> None:
    with busy() as pid:
        finished = run("--pid", str(pid), "-d", "0.4", "--profile", "default", folder=tmp_path)
    assert finished.code == 0, finished.stderr
    output, recording, *_ = finished.stderr.splitlines()
    assert output == (
        f"ebpfprof: process {pid} (yes) is not a Go program: only its CPU profile is recorded."
    )
    assert recording.startswith(f"recording cpu profile of process {pid} (yes)")
    assert names_in(tmp_path) == {f"yes-{pid}.cpu.pb.gz"}
    profile = only_profile(tmp_path)
    assert "write" in " ".join(functions(profile))
    assert profile.mappings[0].filename == str(YES.resolve())


def test_a_block_profile_of_a_program_that_is_not_go_is_refused(tmp_path: Path) -> None:
    with busy() as pid:
        arguments = ("--pid", str(pid), "--profile", "block,cpu")
        output = refused(ExitCode.NOT_GO_PROGRAM, *arguments, folder=tmp_path)
    assert "yes" in output


@pytest.mark.parametrize("option", ["--kernel", *in_full("--no-kernel")])
def test_kernel_frames_follow_the_kernel_option(option: str, tmp_path: Path) -> None:
    with busy() as pid:
        arguments = ("--pid", str(pid), "-d", "0.3", "--profile", "cpu", "--hz", "499", option)
        assert run(*arguments, folder=tmp_path).code == 0
    profile = only_profile(tmp_path)
    in_kernel = [
        location
        for sample in profile.samples
        for location in sample.locations
        if location.mapping and location.mapping.filename == "[kernel.kallsyms]"
    ]
    assert bool(in_kernel) == (option == "--kernel")
    if option == "--kernel":
        names = {frame.function for location in in_kernel for frame in location.frames}
        assert "ksys_write" in names or "vfs_write" in names


@pytest.mark.alone
def test_hidden_kernel_symbols_are_reported(tmp_path: Path) -> None:
    before = KPTR_RESTRICT.read_text()
    KPTR_RESTRICT.write_text("2")
    try:
        with busy() as pid:
            finished = run("--pid", str(pid), "-d", "0.3", "--profile", "cpu", folder=tmp_path)
    finally:
        KPTR_RESTRICT.write_text(before)
    assert finished.code == 0
    profile = only_profile(tmp_path)
    assert "[kernel]" in functions(profile)
    (comment,) = [each for each in profile.comments if "kptr_restrict" in each]
    assert comment in in_one_line(finished.stderr)
    assert "\n    sudo sysctl kernel.kptr_restrict=" in finished.stderr


@pytest.mark.full
def test_two_programs_have_their_own_samples(checker: Target, tmp_path: Path) -> None:
    with busy() as pid:
        pids = f"{pid},{checker.pid}"
        finished = run("--pid", pids, "-d", "0.5", "--profile", "cpu", folder=tmp_path)
    assert finished.code == 0, finished.stderr
    (native,) = tmp_path.glob("yes-*")
    (go,) = tmp_path.glob("checker-*")
    of_go = functions(pprof.decode(go.read_bytes()))
    of_native = functions(pprof.decode(native.read_bytes()))
    assert any(name.startswith("main.") for name in of_go)
    assert not any(name.startswith(("main.", "runtime.")) for name in of_native)
    assert "write" in " ".join(of_native)


def test_a_rate_without_the_cpu_profile_is_a_usage_error(tmp_path: Path) -> None:
    finished = run("--pid", "1", "--profile", "block", "--hz", "50", folder=tmp_path)
    assert finished.code == ExitCode.USAGE
    assert "--hz needs the cpu profile, which is not recorded" in finished.stderr


@pytest.mark.full
@NEEDS_NAMESPACES
def test_a_process_in_a_pid_namespace_is_sampled(tmp_path: Path) -> None:
    isolating = ["/usr/bin/unshare", "--pid", "--fork", "--kill-child"]
    shell = ["/bin/sh", "-c", "yes > /dev/null & echo ready; read end; exit 0"]
    with Target.start(Path(isolating[0]), *isolating[1:], *shell, ready="ready") as unshared:
        found = subprocess.run(
            ["pgrep", "--newest", "--exact", "yes"], check=True, capture_output=True, text=True
        )
        pid = found.stdout.strip()
        status = Path(f"/proc/{pid}/status").read_text()
        (numbers,) = [line for line in status.splitlines() if line.startswith("NSpid:")]
        assert len(numbers.split()) == 3  # the word, and a number in each namespace
        assert unshared.returncode is None
        arguments = ("--pid", pid, "-d", "1", "--profile", "cpu")
        assert run(*arguments, folder=tmp_path).code == 0
    assert only_profile(tmp_path).samples


def sampled(target: Target, line: str, answer: str, *, learn: bool) -> Counter[CpuStack]:
    """What ran while it did what the line asks for.

    Without `learn` the kernel is taught nothing, and every sample is unwound outside of it.
    """
    with ExitStack() as held:
        process = held.enter_context(Process(target.pid))
        go = inspect(process)
        held.enter_context(go.binary.elf)
        sampling = held.enter_context(CpuProfiler(1, CpuConfig(hz=199, kernel=False)))
        sampling.load()
        if not learn:
            sampling.program.learner._install = lambda: None  # type: ignore[method-assign]  # a full table ends walks instead
        recording = sampling.record(OpenedProcess(process, go, held, ProcessBudget(0.0)), 0)
        start = recording.sums().samples
        recording.start()
        with ThreadPoolExecutor(1) as asking:
            asked = asking.submit(target.ask, line, answer)
            while not asked.done():
                sampling.poll()
            asked.result()
        recording.end(0)
        sampling.detach()
        assert sampling.failures() == []
        found = recording.sums().samples - start
        assert (start.taken_out.total() == found.total()) != learn
        return found


def stacks(target: Target, works: str, *, learn: bool) -> Counter[tuple[int, ...]]:
    """Callers of what ran while it did its works, without the address where it was interrupted."""
    found = Counter[tuple[int, ...]]()
    for stack, count in sampled(target, works, "{", learn=learn).items():
        if stack.ending is Ending.WHOLE:
            found[stack.pcs[1:]] += count
    return found


@pytest.mark.parametrize("hz", [99, 999])
def test_it_polls_less_often_once_rules_are_learnt(hz: int) -> None:
    with ExitStack() as held:
        process = held.enter_context(Process(held.enter_context(busy())))
        sampling = held.enter_context(CpuProfiler(1, CpuConfig(hz=hz, kernel=False)))
        sampling.load()
        recording = sampling.record(OpenedProcess(process, None, held, ProcessBudget(0.0)), 0)
        start = recording.sums().samples
        recording.start()
        learning_s = sampling.tick_s
        until = monotonic() + DEADLINE_S
        # Others may have all processors at first.
        while sampling.tick_s <= learning_s or not recording.sums().samples - start:
            assert monotonic() < until, "it learns and learns"
            sleep(sampling.tick_s)
            sampling.poll()
        # So seldom that the largest samples of all processors still have room until then.
        assert sampling.tick_s <= 0.25
        samples = sampling.tick_s * hz * len(online_now())
        assert samples <= max(120, learning_s * hz * len(online_now()))
        sampling.detach()


def test_kernel_and_python_unwind_the_same_stacks() -> None:
    # Each work has a stack with most of its 50 samples.
    works = "work ^(sumSHA256|sumCRC32|sumMD5)$ 250"
    found = []
    for learn in (True, False):
        with Target.start(program("cpuops")) as target:
            found.append(stacks(target, works, learn=learn))
    for one, other in (found, reversed(found)):
        common = [pcs for pcs, count in one.items() if count >= 0.04 * sum(one.values())]
        assert len(common) >= 3
        assert set(common) <= set(other)


@pytest.mark.full
@pytest.mark.parametrize("minor", versions("1.19", "1.27"))
def test_thread_stacks_are_copied_with_their_goroutine_stacks(minor: str) -> None:
    """Partial stacks are finished from a copy, which must have both stacks."""
    with Target.start(program("clocks", minor)) as target:
        found = sampled(target, "ask 2000", "done", learn=False)
    endings = Counter[Ending]()
    for stack, count in found.items():
        endings[stack.ending] += count
    assert endings[Ending.WHOLE] >= 20
    assert set(endings) == {Ending.WHOLE}
