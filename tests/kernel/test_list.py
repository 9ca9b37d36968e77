"""`ebpfprof list` and the options that name processes, on real ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import ExitCode
from tests.builds import pairs
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.programs import TARGETS, program, with_version, without_build_info
from tests.kernel.test_containers import container
from tests.kernel.users import NOBODY, ROOT, as_nobody
from tests.kernel.verbs import PYTHON, verb, with_file
from tests.recorder import names_in
from tests.targets_run import Target
from tests.toolchains import toolchain

ID = "4f1c0e6a" * 8
UID = "c1d2e3f4-0a1b-4c2d-8e3f-001122334455"
MODES = {
    ("1.19", "plain"): "exe",
    ("1.22", "pie"): "pie",
    ("1.24", "plain"): "exe",
    ("1.27", "stripped"): "exe stripped",
    ("1.27", "cgopie"): "pie cgo",
}


def listed(*arguments: str) -> dict[int, dict[str, Any]]:
    """What `list --json` tells, by pid."""
    return by_pid(verb("list", "--json", *arguments).stdout)


def by_pid(text: str) -> dict[int, dict[str, Any]]:
    return {row["pid"]: row for row in json.loads(text)["processes"]}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A program of our own, with a name that no other has."""
    return Path(shutil.copy(program("sleeper"), tmp_path / f"sleeper-{os.getpid()}"))


@pytest.mark.parametrize("build", pairs(*MODES))
def test_list_shows_the_go_version_and_build_mode(build: tuple[str, str]) -> None:
    path = program("blockops", *build)
    with Target.start(path) as target:
        row = listed("--name", "blockops")[target.pid]
    assert row["go_version"] == f"go{toolchain(build[0]).version}"
    assert row["build_mode"] == MODES[build]
    assert (row["supported"], row["why_not"], row["is_go"]) == (True, "", True)
    assert (row["name"], row["user"]) == ("blockops", "root")
    assert row["command"] == row["executable"] == str(path)


def test_each_process_has_a_line_in_the_table(copy: Path) -> None:
    with Target.start(copy, "--flag", "[red]") as target:
        said = verb("list", "-n", copy.name)
    heading, line = said.stdout.splitlines()
    load = ["CPU", "Memory", "Goroutines"]
    assert heading.split() == ["PID", "Name", *load, "User", "Go", "Build", "Profiles", "Command"]
    version = toolchain("1.27").version
    command = [str(copy), "--flag", "[red]"]
    pid, name, cpu, memory, unit, goroutines, *others = line.split()
    assert (pid, name, unit) == (str(target.pid), copy.name, "MiB")
    assert cpu.endswith("%")
    assert float(memory) > 0
    assert int(goroutines) >= 1
    assert others == ["root", version, "exe", "all", *command]


def test_unsupported_programs_are_listed_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new = with_version(program("sleeper"), tmp_path / "new", "go1.99.1")
    other = tmp_path / "sleeper-386"
    source = TARGETS / "sleeper"
    toolchain("1.27").go("build", "-o", other, ".", cwd=source, env={"GOARCH": "386"})
    with Target.start(new) as target, Target.start(other) as foreign:
        found = listed()
    assert found[target.pid]["go_version"] == "go1.99.1"
    assert "whose runtime layout is unknown" in found[target.pid]["why_not"]
    assert "32-bit" in found[foreign.pid]["why_not"]
    assert not found[target.pid]["supported"]
    assert not found[foreign.pid]["supported"]


@pytest.mark.full
def test_a_go_program_without_build_information_is_listed(tmp_path: Path) -> None:
    with Target.start(without_build_info(program("sleeper"), tmp_path)) as target:
        row = listed()[target.pid]
    assert (row["supported"], row["go_version"]) == (True, f"go{toolchain('1.27').version}")


@pytest.mark.full
def test_a_deleted_program_keeps_its_name(copy: Path) -> None:
    with Target.start(copy) as target:
        copy.unlink()
        row = listed("--name", copy.name)[target.pid]
    assert row["executable"] == str(copy)
    assert row["supported"]


@pytest.mark.full
def test_shells_zombies_and_kernel_threads_do_no_harm() -> None:
    with (
        subprocess.Popen(["/bin/true"]) as zombie,
        Target.start(Path("/bin/sh"), "-c", "echo ready $$; read line") as shell,
    ):
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        without, found = listed(), listed("--all")
        shell.say("")
    assert shell.pid not in without
    assert (found[shell.pid]["is_go"], found[shell.pid]["supported"]) == (False, False)
    assert zombie.pid not in found
    assert 2 not in found  # kthreadd


@pytest.mark.full
def test_names_reach_no_terminal_as_escape_sequences(tmp_path: Path) -> None:
    hostile = tmp_path / "\x1b[31mred\x1b]0;title\x07\n\u202egnp"
    shutil.copy(program("sleeper"), hostile)
    with Target.start(hostile, "\x1b[2J", "line\nfeed", os.fsdecode(b"\xff")) as target:
        said = verb("list", "--name", "*red*")  # fails itself if a control character is printed
        row = listed("--name", "*red*")[target.pid]
    lines = [line for line in said.stdout.splitlines() if line.split()[0] == str(target.pid)]
    assert len(lines) == 1
    assert "\\x1b[31mred\\x1b]0;title\\x07\\n\\u202egnp \\x1b[2J line\\nfeed \\xff" in lines[0]
    assert row["command"] == f"{hostile} \x1b[2J line\nfeed \\xff"


def test_without_rights_only_processes_of_the_user_are_listed(copy: Path) -> None:
    os.chmod(copy.parent.parent, 0o755)
    os.chmod(copy.parent, 0o755)
    as_user = ("--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
    with (
        as_nobody() as command,
        Target.start(program("sleeper")) as roots,
        Target.start(Path("/usr/bin/setpriv"), *as_user, str(copy)) as own,
    ):
        said = verb("list", "--json", "--all", command=command)
        nothing = verb("list", "--name", "no-such-program", command=command)
    found = by_pid(said.stdout)
    assert said.code == nothing.code == ExitCode.OK
    assert own.pid in found
    assert found[own.pid]["supported"]
    assert roots.pid not in found
    assert 2 not in found
    assert json.loads(said.stdout)["unseen"] >= 1
    assert "could not be read: " in said.stderr
    assert "Type:\n    sudo " in said.stderr
    assert "could not be read: " in nothing.stderr


@NEEDS_NAMESPACES
def test_a_process_of_another_root_and_pid_namespace_is_listed(tmp_path: Path) -> None:
    with container("overlay", program("sleeper"), tmp_path) as (_, pid):
        row = listed("--name", "app")[pid]
    assert row["executable"].endswith("/app")
    assert (row["name"], row["supported"]) == ("app", True)


INSIDE = """
import sys
from pathlib import Path
from tests.kernel.test_list import by_pid
from tests.kernel.verbs import verb
from tests.targets_run import Target
with Target.start(Path(sys.argv[1])) as target:
    said = verb("list", "--json")
    print("ready", list(by_pid(said.stdout)) == [target.pid], said.stderr)
"""


@pytest.mark.full
@NEEDS_NAMESPACES
def test_within_a_container_list_says_that_it_sees_no_others() -> None:
    isolating = ("--mount-proc", "--pid", "--fork", "--kill-child")
    arguments = (*isolating, sys.executable, "-c", INSIDE, str(program("sleeper")))
    env = {"PYTHONPATH": str(ROOT)}
    unshare = Path("/usr/bin/unshare")
    with (
        Target.start(program("sleeper")),
        Target.start(unshare, *arguments, env=env, ready=None) as unshared,
    ):
        said = unshared.expect("ready")
    assert said.startswith("ready True ebpfprof: Only the processes of this container are visible")


@pytest.fixture
def contained(copy: Path, tmp_path: Path) -> Iterator[tuple[Target, tuple[str, ...]]]:
    """A Go program, and the command that sees it in a Kubernetes container."""
    cgroup = tmp_path / "cgroup"
    cgroup.write_text(f"0::/kubepods/burstable/pod{UID}/{ID}\n")
    with Target.start(copy) as target:
        yield target, with_file(cgroup, f"/proc/{target.pid}/cgroup")


def test_list_shows_the_container_and_pod(contained: tuple[Target, tuple[str, ...]]) -> None:
    target, command = contained
    row = by_pid(verb("list", "--json", command=command).stdout)[target.pid]
    assert (row["container"], row["pod"]) == (ID, UID)
    lines = verb("list", command=command).stdout.splitlines()
    (line,) = (line for line in lines if line.split()[:1] == [str(target.pid)])
    assert f" {ID[:12]}  all " in line


@pytest.mark.full
def test_attach_finds_a_process_by_a_container_id_prefix(
    contained: tuple[Target, tuple[str, ...]], tmp_path: Path
) -> None:
    target, command = contained
    out = tmp_path / "out"
    out.mkdir()
    arguments = ("attach", "--profile", "block", "--duration", "0.1", "--container", ID[:6])
    said = verb(*arguments, command=command, folder=out)
    assert said.code == ExitCode.OK, said.stderr
    assert f"of process {target.pid} (" in said.stderr


@pytest.mark.full
def test_attach_records_all_processes_of_a_name(copy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with Target.start(copy) as first, Target.start(copy) as second:
        arguments = ("attach", "--profile", "block", "--duration", "0.1", "--name", copy.name)
        said = verb(*arguments, folder=out)
    assert said.code == ExitCode.OK, said.stderr
    assert names_in(out) == {f"{copy.name}-{each.pid}.block.pb.gz" for each in (first, second)}


@pytest.mark.parametrize("arguments", [("list",), ("doctor",), ("attach", "--pid", "1")])
def test_without_proc_the_error_says_to_mount_it(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    script = 'mount --make-private /proc && mount -t tmpfs none /proc && exec "$@"'
    isolating = ("/usr/bin/unshare", "--mount", "--propagation", "unchanged")
    command = (*isolating, "/bin/sh", "-c", script, "sh", *PYTHON)
    said = verb(*arguments, command=command, folder=tmp_path)
    assert said.code == ExitCode.KERNEL_UNSUPPORTED
    assert "mount -t proc proc /proc" in said.stderr
