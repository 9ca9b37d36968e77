"""`vagrant/matrix` runs these tests on too old a kernel: ebpfprof says so, and harms nothing.

Not in tests/, since they all fail on a supported kernel.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.targets_run import DEADLINE_S, Target
from tests.toolchains import toolchain

COMMAND = (sys.executable, "-m", "ebpfprof")
BRIEF = Path(__file__).parent.parent / "tests" / "targets" / "brief"
UPROBES = Path("/sys/kernel/tracing/uprobe_events")


def ebpfprof(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, cwd=cwd
    )


@pytest.fixture
def target() -> Iterator[Target]:
    """A Go program that must end well, however its recording went."""
    with Target.start(toolchain("1.27").build(BRIEF), "wait") as started:
        yield started


@pytest.mark.parametrize("profile", ["block", "mutex", "cpu", "block,mutex,cpu"])
def test_recording_is_refused(profile: str, target: Target, tmp_path: Path) -> None:
    words = ("attach", "--pid", str(target.pid), "--duration", "1", "--profile", profile)
    done = ebpfprof(*words, cwd=tmp_path)

    assert done.returncode == ExitCode.KERNEL_UNSUPPORTED, done.stderr
    assert "Linux 5.15 or newer" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert target.returncode is None
    assert UPROBES.read_text() == ""


def test_doctor_says_what_is_missing() -> None:
    done = ebpfprof("doctor", "--json")
    found = json.loads(done.stdout)
    missing = {check["name"]: check for check in found["checks"] if check["level"] == "missing"}

    assert done.returncode == found["exit_code"] == ExitCode.KERNEL_UNSUPPORTED
    assert set(missing) == {"BPF attach cookies"}
    assert "5.15" in missing["BPF attach cookies"]["remedy"]
