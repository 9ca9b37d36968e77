"""CPU profiles of C and C++: called from Go, and in programs that are not Go's at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Frame, Profile, Sample
from tests.builds import in_full, versions
from tests.differential.cpustacks import LIBC, without_room
from tests.kernel.nativeprograms import BOUND_EARLY, compiled
from tests.kernel.programs import program
from tests.recorder import recording
from tests.targets_run import Target

HZ: Final = 999
WORK_MS: Final = 400
# What a work itself uses of its time: the clock, starting up and other threads take the rest.
PART: Final = 0.8
RUNS: Final = 3


def record(target: Target, folder: Path, *commands: str, kernel: bool = False) -> Profile:
    """The profile of a target while it obeys the commands.

    On a machine that stalls there may be no room for all samples that the kernel can't unwind yet:
    some are cut then, and counted. So that all stacks can be held to be whole, it is done again.
    """
    for _ in range(RUNS):
        profile = record_once(target, folder, *commands, kernel=kernel)
        if not without_room(profile):
            break
    return profile


def record_once(target: Target, folder: Path, *commands: str, kernel: bool) -> Profile:
    file = folder / "cpu.pb.gz"
    arguments = ["--profile", "cpu", "--hz", str(HZ), "--force", "-o", str(file)]
    if not kernel:
        arguments.append("--no-kernel")
    with recording(target.pid, folder, *arguments) as recorder:
        for command in commands:
            target.ask(command, "done")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    return pprof.decode(file.read_bytes(), kind="cpu")


def work_in_c(folder: Path, *works: str) -> Profile:
    plugin = compiled("plugin", "-shared", "-fPIC")
    with Target.start(compiled("cwork"), str(plugin), env=BOUND_EARLY) as target:
        return record(target, folder, *(f"{work} {WORK_MS}" for work in works))


def functions(sample: Sample) -> list[str]:
    return [frame.function for frame in frames(sample)]


def frames(sample: Sample) -> list[Frame]:
    return [frame for location in sample.locations for frame in location.frames]


def line(sample: Sample) -> str:
    return " < ".join(functions(sample))


def count(profile: Profile, fits: Callable[[Sample], bool]) -> int:
    return sum(sample.values[0] for sample in profile.samples if fits(sample))


def begins(profile: Profile, *wanted: str) -> int:
    """How many samples have a stack that begins with these functions, the innermost first."""
    return count(profile, lambda sample: tuple(functions(sample)[: len(wanted)]) == wanted)


def with_leaf(profile: Profile, leaf: str) -> list[Sample]:
    found = [sample for sample in profile.samples if functions(sample)[0] == leaf]
    assert found
    return found


def cut_off(samples: Iterable[Sample]) -> list[str]:
    """Stacks that don't end where a thread begins: in libc, whose names are a package apart."""
    return [
        line(sample)
        for sample in samples
        if (end := functions(sample)[-1]).startswith("[") and end != LIBC
    ]


def has_in_order(names: Sequence[str], *wanted: str) -> bool:
    rest = iter(names)
    return all(name in rest for name in wanted)


def enough(ms: int = WORK_MS) -> int:
    return int(PART * ms / 1000 * HZ)


CHAIN: Final = ("_leaf", "_middle", "_outer")


@pytest.mark.parametrize("version", versions("1.19", "1.22", "1.27"))
@pytest.mark.parametrize("mode", [*in_full("cgo"), "cgopie"])
@pytest.mark.parametrize("name", [*in_full("framed"), "frameless"])
def test_stacks_of_c_called_from_go(version: str, mode: str, name: str, tmp_path: Path) -> None:
    with Target.start(program("cgocpu", version, mode)) as target:
        profile = record(target, tmp_path, f"{name} {WORK_MS}")

    in_c = with_leaf(profile, f"{name}_leaf")
    caller = f"main.call{name.capitalize()}"
    for sample in in_c:
        names = functions(sample)
        assert names[:3] == [name + part for part in CHAIN]
        assert has_in_order(
            names,
            *("runtime.asmcgocall", "runtime.cgocall", f"ebpfprof.test/cgocpu/{name}.Work", caller),
            *("main.perform", "runtime/pprof.Do", "main.main", "runtime.main"),
        ), line(sample)
        assert [(label.key, label.value) for label in sample.labels] == [("work", name)]
        assert all(f.file.endswith(f"/{name}/{name}.c") and f.line for f in frames(sample)[:3])
    assert sum(sample.values[0] for sample in in_c) > enough()


@pytest.mark.parametrize("version", versions("1.19", "1.22", "1.27"))
@pytest.mark.parametrize("name", [*in_full("framed"), "frameless"])
def test_stacks_of_go_called_from_c(version: str, name: str, tmp_path: Path) -> None:
    with Target.start(program("cgocpu", version, "cgo")) as target:
        profile = record(target, tmp_path, f"{name}Back {WORK_MS}")

    in_go = with_leaf(profile, "main.computeInGo")
    for sample in in_go:
        assert has_in_order(
            functions(sample),
            *("runtime.cgocallbackg", "runtime.cgocall", f"ebpfprof.test/cgocpu/{name}.Back"),
            *(f"main.{name}Back", "main.perform", "main.main", "runtime.main"),
        ), line(sample)
        assert [(label.key, label.value) for label in sample.labels] == [("work", f"{name}Back")]
    assert sum(sample.values[0] for sample in in_go) > enough()


def test_page_faults_behind_breakpoints_are_unwound(tmp_path: Path) -> None:
    """Bytes that look like a probe are none, also before the rules of the function are learnt."""
    profile = work_in_c(tmp_path, "fillBehindPadding")

    assert begins(profile, "fillPages", "fillBehindPadding") > enough() / 2
    assert cut_off(profile.samples) == []
    for sample in with_leaf(profile, "fillPages"):
        assert functions(sample)[1] == "fillBehindPadding", line(sample)


def test_stacks_with_absent_pages_have_their_callers(tmp_path: Path) -> None:
    """The pages further up have the callers, also before the rules of the function are learnt."""
    profile = work_in_c(tmp_path, "fillFreshFrames")

    assert begins(profile, "fillFrame", "fillFreshFrames") > enough() / 2
    assert cut_off(profile.samples) == []
    for sample in with_leaf(profile, "fillFrame"):
        assert functions(sample)[1] == "fillFreshFrames", line(sample)
        assert "main" in functions(sample), line(sample)


def test_stacks_of_signal_handlers_in_c(tmp_path: Path) -> None:
    """In the system call that ends a handler, the pc is behind the code that has a rule."""
    profile = work_in_c(tmp_path, "raiseSignals")

    in_work = count(profile, lambda sample: has_in_order(functions(sample), "raiseSignals", "main"))
    assert in_work > enough()
    assert cut_off(profile.samples) == []


@pytest.mark.full
def test_deep_stacks_of_c(tmp_path: Path) -> None:
    profile = work_in_c(tmp_path, "callDeep", "callRecursive")

    assert begins(profile, "burn", "level3", "level2", "level1", "callDeep") > enough()
    assert begins(profile, "burn", *["recurse"] * 61, "callRecursive") > enough()
    for sample in with_leaf(profile, "burn"):
        assert "main" in functions(sample), line(sample)
        assert all(f.file.endswith("/cwork.c") and f.line for f in frames(sample)[:3])


@pytest.mark.full
def test_stacks_of_callbacks_from_libc(tmp_path: Path) -> None:
    profile = work_in_c(tmp_path, "sortNumbers")

    in_compare = [sample for sample in profile.samples if "compare" in functions(sample)]
    for sample in in_compare:
        assert has_in_order(functions(sample), "compare", "sortNumbers", "main"), line(sample)
        after = sample.locations[functions(sample).index("compare") + 1]
        assert after.mapping is not None
        assert "libc" in after.mapping.filename
    assert sum(sample.values[0] for sample in in_compare) > enough()


@pytest.mark.full
def test_a_library_loaded_while_recording_has_names(tmp_path: Path) -> None:
    profile = work_in_c(tmp_path, "callPlugin")

    chain = ("plugin_inner", "plugin_middle", "plugin_work", "callPlugin")
    assert begins(profile, *chain) > enough()
    assert all("main" in functions(sample) for sample in with_leaf(profile, "plugin_inner"))


@pytest.mark.full
def test_code_written_at_run_time_is_shown_as_jit(tmp_path: Path) -> None:
    profile = work_in_c(tmp_path, "callWritten")

    assert count(profile, lambda sample: functions(sample)[0] == "[jit]") > enough()


def test_threads_that_start_and_end_are_sampled(tmp_path: Path) -> None:
    profile = work_in_c(tmp_path, "startThreads")

    assert begins(profile, "burn", "level3", "level2", "level1", "inThread") > enough()
    assert cut_off(with_leaf(profile, "burn")) == []


@pytest.mark.full
def test_threads_that_have_just_begun_are_unwound(tmp_path: Path) -> None:
    """clone returns where the new thread begins; all stacks have their callers."""
    profile = work_in_c(tmp_path, "startIdle")

    assert count(profile, lambda sample: "startIdle" in functions(sample)) > enough() / 4
    cut = [line(s) for s in profile.samples for _ in range(s.values[0]) if "[cut off" in line(s)]
    assert len(cut) < count(profile, lambda _: True) / 100, cut


@pytest.mark.full
def test_a_thread_that_changes_processors_is_sampled(tmp_path: Path) -> None:
    expected = pytest.approx(WORK_MS / 1000 * HZ, rel=0.1)
    for _ in range(RUNS):  # while the hypervisor runs other guests, time passes on one processor
        profile = work_in_c(tmp_path, "moveBetween")
        found = count(profile, lambda _: True)
        if found == expected:
            break
    assert begins(profile, "burn", "level3", "level2", "level1", "moveBetween") > enough()
    assert found == expected


@pytest.mark.full
def test_samples_end_when_the_program_execs_another(tmp_path: Path) -> None:
    """Earlier samples stay, and no sample of the new program has names of the old one."""
    plugin, file = compiled("plugin", "-shared", "-fPIC"), tmp_path / "cpu.pb.gz"
    arguments = ("--profile", "cpu", "--hz", str(HZ), "--no-kernel", "-o", str(file))
    with (
        Target.start(compiled("cwork"), str(plugin), env=BOUND_EARLY) as target,
        recording(target.pid, tmp_path, *arguments) as recorder,
    ):
        target.ask(f"callDeep {WORK_MS}", "done")
        target.ask("execute 1", "ready ")
        target.ask(f"callRecursive {WORK_MS}", "done")
        finished = recorder.finish()  # of its own accord
    assert finished.code == 0, finished.stderr
    assert "replaced itself by another program (exec)" in finished.stderr

    profile = pprof.decode(file.read_bytes(), kind="cpu")
    assert begins(profile, "burn", "level3", "level2", "level1", "callDeep") > enough()
    assert count(profile, lambda _: True) < WORK_MS / 1000 * HZ * 1.5  # not twice as much
    assert count(profile, lambda sample: "callRecursive" in functions(sample)) == 0


@pytest.mark.full
def test_stacks_of_cxx_have_demangled_names(tmp_path: Path) -> None:
    works = ("callMethods", "sortWithLambda", "throwAndCatch")
    with Target.start(compiled("cxxwork"), env=BOUND_EARLY) as target:
        profile = record(target, tmp_path, *(f"{work} {WORK_MS}" for work in works))

    inlined, outlined = (
        r"shop::Basket<long>::add\(long\) const",
        r".*Basket<long>::total\(long\) .*",
    )
    in_total = [s for s in profile.samples if re.fullmatch(outlined, functions(s)[1])]
    for sample in in_total:
        assert re.fullmatch(inlined, functions(sample)[0])
        assert len(sample.locations[0].frames) == 2
        assert has_in_order(
            functions(sample),
            "shop::Reduced::of(long) const",
            "shop::charge(shop::Price const&, long)",
            "callMethods()",
            "main",
        ), line(sample)
    assert sum(sample.values[0] for sample in in_total) > enough()
    assert count(profile, lambda s: has_in_order(functions(s), "sortWithLambda()", "main")) > (
        enough()
    )
    assert count(profile, lambda s: has_in_order(functions(s), "throwAndCatch()", "main")) > (
        enough()
    )
