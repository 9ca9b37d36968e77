"""A program whose goroutines wait in a Go plugin, which has its own copy of the runtime's code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.goruntime.open_processes import OpenProcess, OpenProcesses
from ebpfprof.goruntime.references.reader import ReferenceReader
from ebpfprof.server import goroutines
from tests.go_target import read
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import NEWEST, TARGETS, program
from tests.kernel.verbs import verb
from tests.recorder import EVERY_WAIT, only_profile, recording, run
from tests.targets_run import Target
from tests.toolchains import toolchain

WAITS = ("--profile", "block,mutex")
KEPT = "ebpfprof.test/plugged/plugin.kept"
WORK = "ebpfprof.test/plugged/plugin.Work"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugin") / "work.so"
    command = ("build", "-buildmode=plugin", "-buildvcs=false", "-o", path, "./plugin")
    toolchain(NEWEST).go(*command, cwd=TARGETS / "plugged", env={"CGO_ENABLED": "1"})
    return path


@pytest.fixture(scope="module")
def target(plugin: Path) -> Iterator[Target]:
    with Target.start(program("plugged", mode="cgo"), str(plugin)) as started:
        started.ask("open", "opened")
        yield started


def sentence(plugin: Path, stacks: str = "") -> str:
    return (
        f"Waits in {plugin} are not recorded{stacks}: it is a Go plugin with a separate copy of "
        "the runtime's code."
    )


@pytest.mark.target(
    "plugins",
    "everything but their waits in traces and their allocations found by probes, in plugins that "
    "were open when the recording began",
)
def test_its_waits_are_recorded(target: Target, plugin: Path, tmp_path: Path) -> None:
    """Of three goroutines that share a lock, two wait at any time."""
    finished = run("--pid", str(target.pid), *WAITS, "--duration", "1", folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert str(plugin) not in finished.stderr
    assert not has_probes(target.pid)
    profiles = {
        path.name.split(".")[-3]: pprof.decode(path.read_bytes())
        for path in tmp_path.glob("*.pb.gz")
    }
    for name, leaf in (("block", "sync.(*Mutex).Lock"), ("mutex", "sync.(*Mutex).Unlock")):
        (sample,) = profiles[name].samples
        frames = [frame.function for location in sample.locations for frame in location.frames]
        assert frames == [leaf, WORK, "main.open.gowrap1"]
    waits, releases = (profiles[name].samples[0].values for name in ("block", "mutex"))
    assert 1 < waits[1] / profiles["block"].duration_ns < 2.1
    assert releases == pytest.approx(waits, rel=0.02)  # what is under way at the ends


@pytest.mark.full
@pytest.mark.parametrize("how", [("--max-overhead", "1"), ("--one-in-eight",)], ids=" ".join)
def test_its_waits_are_sampled(
    how: tuple[str, ...], target: Target, plugin: Path, tmp_path: Path
) -> None:
    options = (*WAITS, *how, "--duration", "3")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert str(plugin) not in finished.stderr
    assert not has_probes(target.pid)
    (path,) = tmp_path.glob("*.block.pb.gz")
    profile = pprof.decode(path.read_bytes())
    assert len(profile.samples) > 0
    waited_ns = sum(sample.values[1] for sample in profile.samples)
    error_ns = 6 * sqrt(sum(sample.variance for sample in profile.samples))
    assert abs(waited_ns - 2 * profile.duration_ns) < 0.4 * profile.duration_ns + error_ns
    for sample in profile.samples:
        frames = [frame.function for location in sample.locations for frame in location.frames]
        assert frames == ["sync.(*Mutex).Lock", WORK, "main.open.gowrap1"]


def test_a_plugin_opened_meanwhile_is_reported(plugin: Path, tmp_path: Path) -> None:
    with Target.start(program("plugged", mode="cgo"), str(plugin)) as target:
        with recording(target.pid, tmp_path, *EVERY_WAIT) as recorder:
            target.ask("open", "opened")
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == ExitCode.OK, finished.stderr
    expected = sentence(plugin, ", and stacks lack its functions")
    assert in_one_line(finished.stderr).count(expected) == 1
    assert expected in " ".join(only_profile(tmp_path).comments)


def test_a_cpu_profile_needs_no_warning(target: Target, plugin: Path, tmp_path: Path) -> None:
    """It has the names of a plugin by the symbols of the file."""
    options = ("--profile", "cpu", "--duration", "0.5")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK
    assert str(plugin) not in finished.stderr


@pytest.mark.full
def test_a_trace_reports_missing_waits(target: Target, plugin: Path, tmp_path: Path) -> None:
    output = verb("trace", "--pid", str(target.pid), "-d", "0.5", folder=tmp_path)
    assert output.code == ExitCode.OK, output.stderr
    assert sentence(plugin) in in_one_line(output.stderr)


def test_a_dump_has_its_frames(target: Target) -> None:
    output = verb("dump", "--pid", str(target.pid))
    assert output.code == ExitCode.OK, output.stderr
    assert "plugin" not in output.stderr
    names = [line.split()[0] for line in output.stdout.splitlines() if line.startswith("    ")]
    places = [number for number, name in enumerate(names) if name == "sync.(*Mutex).Lock"]
    assert places
    assert all(names[place + 1] == WORK for place in places)


def test_a_wall_profile_has_its_frames(target: Target, tmp_path: Path) -> None:
    options = ("--profile", "wall", "--duration", "0.5")
    finished = run("--pid", str(target.pid), *options, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    assert "plugin" not in finished.stderr
    stacks = [
        [frame.function for location in sample.locations for frame in location.frames]
        for sample in only_profile(tmp_path).samples
    ]
    assert sum("sync.(*Mutex).Lock" in stack for stack in stacks) > 0
    for stack in stacks:
        if "sync.(*Mutex).Lock" in stack or "time.Sleep" in stack:
            assert WORK in stack


def test_what_its_variables_keep_is_found(target: Target) -> None:
    with OpenProcesses().open(target.pid) as process:
        found = ReferenceReader(process.go())
        freed = found.freed_addresses(KEPT)
        assert len(freed) == 500
        assert found.scan.heap.is_whole
        (root,) = (r.paths for r in found.references().roots if r.paths.label == KEPT)
    assert (root.total_objects, root.total) == (500, 500 * 896)


@pytest.mark.parametrize("reader", [goroutines.text, goroutines.traceback])
def test_served_stacks_have_its_frames(
    target: Target, reader: Callable[[OpenProcess], bytes]
) -> None:
    """As /debug/pprof/goroutine has them."""
    served = read(target.pid, reader).decode()
    assert served.count("sync.(*Mutex).Lock") > 0
    assert served.count(WORK) > 0
    assert "additional frames elided" not in served


def in_one_line(text: str) -> str:
    """Messages wrap at words."""
    return " ".join(text.split())
