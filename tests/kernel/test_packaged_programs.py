"""Verbs of an installed package, whose BPF programs are compiled, on a machine without BCC."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebpfprof.kernel import packaged_programs
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.profilers.cpu import cpu_program
from ebpfprof.profilers.waits import collector
from ebpfprof.profilers.waits.rows import WaitsConfig
from tests.kernel.programs import program
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


@pytest.mark.full
def test_all_verbs_need_no_bcc(tmp_path: Path) -> None:
    """With all programs of a release, also those of rare options."""
    package = installed(tmp_path / "package", compile_programs.sources())
    commands = (
        ("attach", "--profile", "block,mutex,wakers", "--by-lock", "--max-overhead", "0"),
        ("attach", "--profile", "mutex", "--runtime-locks", "--max-overhead", "0"),
        ("attach", "--profile", "block", "--block-rate", "1000", "--max-overhead", "0"),
        ("attach", "--profile", "block", "--earlier-waits", "--labels", "user"),
        ("attach", "--profile", "block,runqueue", "--labels", "none"),
        ("attach", "--profile", "cpu", "--no-kernel"),
        ("trace",),
    )
    with Target.start(program("ticker")) as target:
        for number, (name, *options) in enumerate(commands):
            folder = tmp_path / str(number)
            folder.mkdir()
            pid = ("--pid", str(target.pid), "-d", "0.5")
            verb(package, name, *pid, *options, folder=folder)
