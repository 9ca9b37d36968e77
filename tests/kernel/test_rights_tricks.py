"""Attempts to gain rights with the environment and marked files."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.privileges.capabilities import NUMBERS
from symbolizer.native.demangle import Demangler
from tests.kernel.programs import program
from tests.kernel.strangers import strangers
from tests.kernel.users import ROOT, anybodys_folder, by_user, open_checkout
from tests.kernel.verbs import Said, verb
from tests.recorder import run
from tests.targets_run import Target

USER = 23456
# struct vfs_cap_data of revision 2 with the effective bit (include/uapi/linux/capability.h).
FILE_CAPABILITIES = struct.Struct("<5I")
REVISION_2_EFFECTIVE = 0x0200_0001


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("ticker")) as running:
        yield running


@pytest.fixture
def python() -> Iterator[Path]:
    """A copy of Python that marks can be put on; any user may execute it."""
    with anybodys_folder() as folder:
        copy = Path(shutil.copy(os.path.realpath(sys.executable), folder / "python3"))
        copy.chmod(0o755)
        yield copy


def by_marked(python: Path, *arguments: str) -> Said:
    """The command run by a user without rights, with this Python; it must write nothing."""
    with open_checkout() as checkout, anybodys_folder() as folder:
        packages = sysconfig.get_path("purelib").replace(str(ROOT), str(checkout), 1)
        os.chown(folder, USER, USER)
        path = f"PYTHONPATH={checkout}:{packages}:/usr/lib/python3/dist-packages"
        # Without rights of its own, but none is barred.
        unprivileged = [word for word in by_user(USER) if not word.startswith("--bounding-set")]
        # As the caller of a set-user-id program may have it.
        command = (*unprivileged, "/usr/bin/env", path, str(python), "-m", "ebpfprof")
        output = verb(*arguments, command=command, folder=folder)
        assert list(folder.iterdir()) == []
        return output


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_a_set_user_id_program_refuses_to_run(mode: int, python: Path) -> None:
    python.chmod(mode)
    output = by_marked(python, "list")
    assert output.code == ExitCode.PERMISSION_DENIED
    assert "set-user-id" in output.stderr


def test_a_program_with_file_capabilities_refuses_to_run(python: Path, target: Target) -> None:
    low = 1 << NUMBERS["CAP_SYS_PTRACE"] | 1 << NUMBERS["CAP_DAC_READ_SEARCH"]
    high = 1 << NUMBERS["CAP_BPF"] - 32 | 1 << NUMBERS["CAP_PERFMON"] - 32
    mark = FILE_CAPABILITIES.pack(REVISION_2_EFFECTIVE, low, 0, high, 0)
    os.setxattr(python, "security.capability", mark)
    output = by_marked(python, "attach", "--pid", str(target.pid), "--duration", "0.1")
    assert output.code == ExitCode.PERMISSION_DENIED
    assert "file capabilities" in output.stderr


def test_no_environment_variable_reaches_the_compiler(target: Target, tmp_path: Path) -> None:
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux" / "types.h").write_text("#error from somewhere else\n")
    names = ("CPATH", "C_INCLUDE_PATH", "BCC_KERNEL_SOURCE", "BCC_SYMFS", "COMPILER_PATH")
    env = {"BCC_LINUX_VERSION_CODE": "no_such_name"} | dict.fromkeys(names, str(tmp_path))
    finished = run("--pid", str(target.pid), "--duration", "0.1", folder=tmp_path, env=env)
    assert finished.code == ExitCode.OK, finished.stderr


def test_the_installed_command_loads_no_foreign_code(tmp_path: Path) -> None:
    """Nothing from the current folder, of a user's own packages, or where a variable points."""
    others = strangers(tmp_path)
    script = Path(sysconfig.get_path("scripts")) / "ebpfprof"
    output = verb("doctor", command=(str(script),), folder=others.modules, env=others.environment)
    assert others.marks() == []
    assert output.code == ExitCode.OK, output.stderr


def test_the_demangler_has_no_rights_and_opens_no_file() -> None:
    servant = Demangler()
    try:
        assert servant.ask("_ZN3foo3barEv") == "foo::bar()"
        assert servant._process is not None
        status = Path(f"/proc/{servant._process.pid}/status").read_text()
        limits = Path(f"/proc/{servant._process.pid}/limits").read_text()
    finally:
        servant.end()
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert f"{name}:\t{0:016x}\n" in status
    assert "NoNewPrivs:\t1\n" in status
    (files,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert files.split()[3:5] == ["0", "0"]


def test_executed_programs_do_not_regain_dropped_rights() -> None:
    code = (
        "from ebpfprof.privileges.capabilities import give_up; import os\n"
        "give_up(['CAP_BPF'])\n"
        "os.execv('/usr/bin/grep', ['grep', '-E', '^(Cap|NoNew)', '/proc/self/status'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    only_bpf = f"{1 << NUMBERS['CAP_BPF']:016x}"
    assert done.stdout.split() == [
        *("CapInh:", f"{0:016x}", "CapPrm:", only_bpf, "CapEff:", only_bpf),
        *("CapBnd:", only_bpf, "CapAmb:", f"{0:016x}", "NoNewPrivs:", "1"),
    ]
