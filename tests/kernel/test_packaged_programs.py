"""Verbs of an installed package, whose BPF programs are compiled, on a machine without BCC."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebpfprof.kernel import packaged_programs
from ebpfprof.kernel.packaged_programs import CHECKSUMS, COMPILER
from ebpfprof.kernel.program_source import Compiled, ProgramSource
from ebpfprof.profilers.cpu import cpu_program
from ebpfprof.profilers.waits import collector
from ebpfprof.profilers.waits.rows import WaitsConfig
from tests.agent.running import RunningAgent, settings
from tests.kernel.programs import program
from tests.recorder import EVERY_WAIT
from tests.server.serving import Server
from tests.targets_run import Target
from tests.tools import compile_programs

ROOT = Path(__file__).parents[2]
IN_GATE = (
    collector.source(WaitsConfig(block=True, mutex=True, one_in_eight=True)),
    cpu_program.source(kernel=True, labels=True),
)
PYTHON = """
import sys
sys.path.insert(0, sys.argv.pop(1))
sys.modules["bcc"] = None
from ebpfprof.__main__ import main
main()
"""


def installed(folder: Path, sources: Sequence[ProgramSource]) -> Path:
    """What a wheel installs, with these programs compiled."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name, to in (("ebpfprof", "ebpfprof"), ("symbolizer", "symbolizer"), ("bpf", "_bpf")):
        place = folder / "ebpfprof" / to if name == "bpf" else folder / to
        shutil.copytree(ROOT / name, place, ignore=ignored, dirs_exist_ok=True)
    compile_programs.write(folder / "ebpfprof/_bpf/compiled", compile_programs.compiled(sources))
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("package"), IN_GATE)


def verb(package: Path, *arguments: str, folder: Path) -> str:
    command = (sys.executable, "-c", PYTHON, str(package), *arguments)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_default_recording_needs_no_bcc(package: Path, tmp_path: Path) -> None:
    with Target.start(program("ticker")) as target:
        output = verb(package, "attach", "--pid", str(target.pid), "-d", "0.5", folder=tmp_path)
    assert "CPU time of process" in output
    assert len(list(tmp_path.glob("*.pb.gz"))) == 3


def test_doctor_shows_that_bcc_is_not_needed(package: Path, tmp_path: Path) -> None:
    checks = json.loads(verb(package, "doctor", "--json", folder=tmp_path))
    found = {check["name"]: check for check in checks["checks"]}
    assert found["compiled BPF programs"]["found"].startswith("2, by BCC ")
    assert found["BCC"]["level"] == found["LLVM of BCC"]["level"] == "ok"


def test_the_same_source_gives_the_same_file(package: Path) -> None:
    (name, again), *_ = compile_programs.compiled(IN_GATE[1:]).items()
    assert (package / "ebpfprof/_bpf/compiled" / name).read_bytes() == again
    assert packaged_programs.checksums_of({name: again}).strip() in (
        (package / "ebpfprof/_bpf/compiled/SHA256SUMS").read_text()
    )


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all programs of a release, also those of rare options."""
    folder = tmp_path_factory.mktemp("release")
    return installed(folder, compile_programs.sources())


@pytest.mark.full
def test_all_verbs_need_no_bcc(release: Path, tmp_path: Path) -> None:
    of_pid = (
        ("attach", "-d", "0.5", "--profile", "block,mutex,wakers", "--by-lock", *EVERY_WAIT),
        ("attach", "-d", "0.5", "--profile", "mutex", "--runtime-locks", *EVERY_WAIT),
        ("attach", "-d", "0.5", "--profile", "block", "--block-rate", "1000", *EVERY_WAIT),
        ("attach", "-d", "0.5", "--profile", "block", "--earlier-waits", "--labels", "user"),
        ("attach", "-d", "0.5", "--profile", "block,runqueue", "--labels", "none"),
        ("attach", "-d", "0.5", "--profile", "cpu", "--no-kernel"),
        ("attach", "-d", "0.5", "--profile", "heap,allocs,goroutine,threads,wall"),
        ("trace", "-d", "0.5"),
        ("top", "--once", "--interval", "0.5"),
        ("explain", "-d", "1"),
        ("memory",),
        ("dump",),
        ("doctor",),
    )
    with Target.start(program("ticker")) as target:
        for number, (name, *options) in enumerate((*of_pid, ("list",))):
            folder = tmp_path / str(number)
            folder.mkdir()
            pid = () if name == "list" else ("--pid", str(target.pid))
            assert verb(release, name, *pid, *options, folder=folder)
    command = str(program("ticker"))
    assert verb(release, "run", "-d", "0.5", "--profile", "block", "--", command, folder=tmp_path)


@pytest.mark.full
def test_a_server_and_an_agent_need_no_bcc(release: Path, tmp_path: Path) -> None:
    without_bcc = (sys.executable, "-c", PYTHON, str(release))
    profile = "/debug/pprof/block?seconds=1"
    marked = {"AGENT_TEST": str(tmp_path)}
    with Target.start(program("ticker"), env=marked) as target:
        with Server("--pid", str(target.pid), command=(*without_bcc, "serve")) as server:
            assert server.get(profile).profile("block").samples
        with RunningAgent(tmp_path, settings(tmp_path), command=(*without_bcc, "agent")) as agent:
            agent.await_windows(1)


@pytest.mark.full
def test_a_release_has_what_bcc_compiles(release: Path) -> None:
    """Each program, compiled again: all maps and instructions."""
    wanted = compile_programs.sources()
    again = compile_programs.compiled(wanted)
    folder = release / "ebpfprof/_bpf/compiled"
    assert len(again) == len(wanted)
    for source in wanted:
        name = packaged_programs.file_name(source)
        made = Compiled.of_json(json.loads(zlib.decompress((folder / name).read_bytes())))
        assert made == Compiled.of_json(json.loads(zlib.decompress(again[name]))), source
        assert made.functions.keys() == set(source.all_functions())
    assert {path.name for path in folder.iterdir()} == {*again, CHECKSUMS, COMPILER}
