"""The unit of systemd: it is understood, and has the rights of SECURITY.md and no more."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.privileges.checks import RECORDING
from tests.tools.rooms import ROOT

UNIT: Final = ROOT / "packaging" / "systemd" / "ebpfprof-agent.service"
# Of 100, as systemd-analyze of systemd 252 judges. A profiler of all processes can't have all that
# it asks for, such as ProtectProc.
MOST_EXPOSED: Final = 43


def values(key: str) -> str:
    """All values of a key, in a line."""
    return " ".join(re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a command that is there."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/ebpfprof agent", "/bin/true"))
    return unit


def test_systemd_understands_it(installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", installed],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_finds_it_confined(installed: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSED}"]
    done = subprocess.run([*command, installed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_has_the_rights_that_recording_needs() -> None:
    # CAP_SYS_ADMIN where the kernel wants it, CAP_SETPCAP to give it up elsewhere.
    assert set(values("CapabilityBoundingSet").split()) == {
        *RECORDING,
        "CAP_SYS_ADMIN",
        "CAP_SETPCAP",
    }
    assert values("NoNewPrivileges") == "yes"


def test_nothing_is_written_into_other_processes() -> None:
    refused = next(each for each in values("SystemCallFilter").split("~")[1:])
    assert {"ptrace", "process_vm_writev"} <= set(refused.split())


def test_it_is_not_started_again_where_that_is_of_no_use() -> None:
    kept = {
        ExitCode.USAGE,
        ExitCode.PERMISSION_DENIED,
        ExitCode.KERNEL_UNSUPPORTED,
        ExitCode.BCC_MISSING,
    }
    assert set(map(int, values("RestartPreventExitStatus").split())) == kept
