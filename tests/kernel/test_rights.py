"""The least rights: they are enough, a missing one is named, and all others are dropped.

Profiles that read memory only need no right to use BPF.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.kernel import perf_events, uprobe_links
from ebpfprof.privileges.capabilities import NUMBERS, set_aside
from ebpfprof.privileges.checks import LOOKING, RECORDING, WRITING
from tests.builds import in_full
from tests.kernel import beforeprograms, oldkernel
from tests.kernel.programs import program
from tests.kernel.screens import screen
from tests.kernel.users import (
    ANYBODYS_PYTHON,
    ROOT,
    by_user,
    ebpfprof,
    folder_of,
    open_checkout,
    process_of,
)
from tests.kernel.verbs import Said, verb
from tests.recorder import recording
from tests.server.serving import Server
from tests.targets_run import Target

OWNER = 12345
USER = 23456
KINDS = ("block", "mutex", "cpu")
# CAP_SYS_ADMIN stands for the first two, and is wanted where there are no links for probes.
OWN = ("bpf", "perfmon") if uprobe_links.is_offered() else ("sys_admin",)
LEAST = (*OWN, "sys_ptrace", "dac_read_search")
with set_aside("CAP_SYS_ADMIN"):
    # Debian's kernel may want more for CPU samples than CAP_PERFMON (README.md).
    TO_SAMPLE = () if perf_events.may_open_events() else ("sys_admin",)
LEAST_FOR = {"block": LEAST, "mutex": LEAST, "cpu": (*LEAST, *TO_SAMPLE)}
LEAST_FOR_ALL = LEAST_FOR["cpu"]
# What runs a verb until the target is read, and no longer.
VERBS = {
    "attach": ("--duration", "0.2"),
    "top": ("--once", "--interval", "0.2"),
    "serve": ("--listen", "127.0.0.1:0"),
}


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    with open_checkout() as folder:
        yield folder


@pytest.fixture(scope="module")
def owners() -> Iterator[Target]:
    with process_of(OWNER) as target:
        yield target


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_of(USER) as path:
        yield path


def run(
    checkout: Path, folder: Path, name: str, *arguments: str, uid: int = USER, rights: Sequence[str]
) -> Said:
    """A verb run by a user with these rights."""
    command = (*by_user(uid, rights), *ebpfprof(checkout, name))
    return verb(*arguments, command=command, folder=folder)


def without(missing: str) -> tuple[str, ...]:
    return tuple(each for each in LEAST if each != missing)


def named(capability: str) -> str:
    """The rights that the message names: for CAP_SYS_ADMIN, those that it stands for."""
    return "CAP_BPF, CAP_PERFMON" if capability == "sys_admin" else f"CAP_{capability.upper()}"


@pytest.mark.parametrize("kind", ["block", *in_full("mutex"), "cpu"])
def test_the_least_rights_are_enough_for_each_profile(
    kind: str, checkout: Path, owners: Target, folder: Path
) -> None:
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--duration", "0.5"),
        *("--profile", kind),
        rights=LEAST_FOR[kind],
    )
    assert output.code == ExitCode.OK, output.stderr
    (written,) = folder.iterdir()
    assert (written.stat().st_uid, written.stat().st_mode & 0o777) == (USER, 0o600)
    profile = pprof.decode(written.read_bytes(), kind=kind)
    # No goroutine waits for a lock in it, and perhaps no sample falls into it.
    assert kind != "block" or profile.samples


@pytest.mark.full
def test_the_least_rights_are_enough_for_top(checkout: Path, owners: Target, folder: Path) -> None:
    output = run(
        *(checkout, folder, "top", "--pid", str(owners.pid), "--once", "--interval", "0.5"),
        rights=LEAST_FOR_ALL,
    )
    assert output.code == ExitCode.OK, output.stderr
    assert "main.receive" in output.stdout


@pytest.mark.full
def test_the_least_rights_are_enough_to_serve_the_invoking_user(
    checkout: Path, owners: Target
) -> None:
    command = (*by_user(USER, LEAST_FOR_ALL), *ebpfprof(checkout, "serve"))
    with Server("--pid", str(owners.pid), "--last", "1s", command=command) as server:
        assert server.get("/debug/pprof/trace?last").body.startswith(b"go 1.2")
        path = f"http://{server.address}/debug/pprof/block?seconds=1"
        assert server.get("/debug/pprof/block?seconds=1").profile("block").samples
        fetch = f"import urllib.request as r; print(r.urlopen({path!r}).status)"
        asked = [
            subprocess.run(
                [*ANYBODYS_PYTHON, "-c", fetch],
                user=uid,
                capture_output=True,
                text=True,
                check=False,
            )
            for uid in (USER, OWNER)
        ]
        assert asked[0].stdout == "200\n", asked[0].stderr
        assert "403" in asked[1].stderr
        server.send(signal.SIGTERM)
        assert server.finish() == 0


@pytest.mark.full
def test_two_rights_are_enough_for_processes_of_the_user(
    checkout: Path, owners: Target, folder: Path
) -> None:
    os.chown(folder, OWNER, OWNER)
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--duration", "0.3"),
        uid=OWNER,
        rights=(*OWN, *TO_SAMPLE),
    )
    assert output.code == ExitCode.OK, output.stderr
    assert len(list(folder.iterdir())) == len(KINDS)


def test_two_rights_are_enough_to_run_a_program(checkout: Path, folder: Path) -> None:
    Path(shutil.copy(program("brief"), folder)).chmod(0o755)
    output = run(checkout, folder, "run", "--profile", "block", "--", "./brief", rights=OWN)
    assert output.code == ExitCode.OK, output.stderr
    assert list(folder.glob("*.block.pb.gz"))
    for missing in OWN:
        rights = [each for each in OWN if each != missing]
        output = run(checkout, folder, "run", "--", "./brief", rights=rights)
        assert output.code == ExitCode.PERMISSION_DENIED
        assert named(missing) in output.stderr


@pytest.mark.parametrize(
    "name", ["attach", *in_full(*(name for name in VERBS if name != "attach"))]
)
@pytest.mark.parametrize("missing", LEAST)
def test_a_missing_right_is_named(
    missing: str, name: str, checkout: Path, owners: Target, folder: Path
) -> None:
    arguments = ("--pid", str(owners.pid), *VERBS[name])
    output = run(checkout, folder, name, *arguments, rights=without(missing))
    assert output.code == ExitCode.PERMISSION_DENIED
    line, command = output.stderr.splitlines()
    assert line.endswith(
        f" {named(missing)} {'are' if ',' in named(missing) else 'is'} missing. Type:"
    )
    assert command.startswith("    sudo ")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("missing", ["sys_ptrace", *in_full("dac_read_search")])
def test_list_needs_rights_for_processes_of_other_users(
    missing: str, checkout: Path, owners: Target, folder: Path
) -> None:
    looking = ["sys_ptrace", "dac_read_search"]
    for rights in (looking, [each for each in looking if each != missing]):
        output = run(checkout, folder, "list", "--json", rights=rights)
        assert output.code == ExitCode.OK
        listed = [load["pid"] for load in json.loads(output.stdout)["processes"]]
        assert (owners.pid in listed) == (rights == looking)


SPINNING = """
import ctypes, os, sys, threading

library = ctypes.CDLL(sys.argv[1])
os.unlink(sys.argv[1])
threading.Thread(target=lambda: [library.spin_here() for _ in iter(int, 1)], daemon=True).start()
print("ready", os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.mark.full
def test_deleted_libraries_need_checkpoint_restore(checkout: Path, folder: Path) -> None:
    source, library = folder / "spin.c", folder / "libspin.so"
    source.write_text(
        "volatile long n; void spin_here(void) { for (int i = 0; i < 1000000; i++) n++; }"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    command, *options = by_user(OWNER)
    os.chown(folder, OWNER, OWNER)
    folder.chmod(0o777)
    spinning = ("/usr/bin/python3", "-c", SPINNING, str(library))
    with Target.start(Path(command), *options, *spinning) as target:
        for extra in ((), ("checkpoint_restore",)):
            output = run(
                *(checkout, folder, "attach", "--pid", str(target.pid), "--duration", "0.5"),
                *("--profile", "cpu", "--format", "folded", "--output", "-"),
                rights=(*LEAST_FOR["cpu"], *extra),
            )
            assert output.code == ExitCode.OK, output.stderr
            assert ("spin_here" in output.stdout) == bool(extra)
            assert ("[libspin.so]" in output.stdout) != bool(extra)


@pytest.mark.full
def test_admin_stands_for_bpf_and_perfmon(checkout: Path, owners: Target, folder: Path) -> None:
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--duration", "0.2"),
        rights=("sys_admin", "sys_ptrace", "dac_read_search"),
    )
    assert output.code == ExitCode.OK, output.stderr


@pytest.mark.full
def test_kernels_that_need_admin_for_probes_are_named(
    checkout: Path, owners: Target, folder: Path
) -> None:
    python = ebpfprof(checkout)[:3]
    script = checkout / Path(oldkernel.__file__).relative_to(ROOT)
    rights = ("bpf", "perfmon", "sys_ptrace", "dac_read_search")
    command = (*by_user(USER, rights), *python, str(script))
    arguments = ("attach", "--pid", str(owners.pid), "--profile", "block")
    output = verb(*arguments, command=command, folder=folder)
    assert output.code == ExitCode.PERMISSION_DENIED
    assert "for which it wants CAP_SYS_ADMIN" in output.stderr


def rights_of(pid: int) -> set[tuple[str, ...]]:
    """Effective, permitted and bounding set and no_new_privs, of all threads."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        names = ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs")
        values = [re.search(rf"^{name}:\s*(\w+)$", status, re.MULTILINE) for name in names]
        found.add(tuple(match[1] for match in values if match))
    return found


def mask(names: frozenset[str]) -> str:
    return f"{sum(1 << NUMBERS[name] for name in names):016x}"


def given_up_but(keep: frozenset[str]) -> set[tuple[str, ...]]:
    return {(*[mask(keep)] * 3, "1")}


# While all is recorded, and until all probes are in.
SAMPLING = RECORDING | {f"CAP_{name.upper()}" for name in TO_SAMPLE}
PROBING = SAMPLING if uprobe_links.is_offered() else RECORDING | {"CAP_SYS_ADMIN"}
KEPT = {
    "list": LOOKING,
    "attach": PROBING | WRITING,
    "top": PROBING | WRITING,
    "serve": PROBING,
    "serve --all-go": PROBING,
}


@pytest.mark.parametrize(
    "what",
    ["list", "attach", "serve", *in_full(*sorted(KEPT.keys() - {"list", "attach", "serve"}))],
)
def test_rights_are_dropped_before_programs_are_opened(
    what: str, target: Target, tmp_path: Path
) -> None:
    """In all threads, also those of libraries, which do not drop rights themselves."""
    name, *arguments = what.split()
    if name != "list":
        arguments = [*(arguments or ("--pid", str(target.pid))), *VERBS[name]]
    with subprocess.Popen(
        [*beforeprograms.COMMAND, name, *arguments],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            state = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert state is not None
            assert state.si_code == os.CLD_STOPPED, process.communicate()[0]
            opening = descendants_of(process.pid)
            assert len(opening) >= 2, "who starts the child that opens it, and that"
            for pid in (process.pid, *opening):
                assert rights_of(pid) == given_up_but(KEPT[what])
        finally:
            for pid in descendants_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.kill()


def descendants_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [each for child in map(int, text.split()) for each in (child, *descendants_of(child))]


@pytest.mark.full
def test_top_keeps_only_the_rights_that_it_needs(tmp_path: Path) -> None:
    with (
        Target.start(program("demo")) as shop,
        screen(tmp_path, PYTHONPATH=str(ROOT)) as terminal,
    ):
        terminal.type(
            f"{shlex.quote(sys.executable)} -m ebpfprof top --pid {shop.pid} --profile block"
        )
        terminal.wait_for(r"main\.\(\*PriceCache\)\.Get")
        (process,) = terminal.programs
        # What programs may get that are executed can only be limited once, at first.
        assert {each[:2] for each in rights_of(process.pid)} == {
            each[:2] for each in given_up_but(RECORDING | WRITING)
        }
        terminal.press("q")
        terminal.wait_for(r"^shell> *\Z")


def test_attach_keeps_only_the_rights_that_it_needs(target: Target, tmp_path: Path) -> None:
    with recording(target.pid, tmp_path, "--profile", "default", "--open", "--by-lock") as recorder:
        assert rights_of(recorder.pid) == given_up_but(SAMPLING | WRITING)
        recorder.interrupt()
        assert recorder.finish().code == ExitCode.OK


@pytest.mark.full
def test_old_kernels_keep_the_rights_that_probes_need(target: Target, tmp_path: Path) -> None:
    command = (*oldkernel.COMMAND, "attach")
    with recording(target.pid, tmp_path, command=command) as recorder:
        # What programs may get that are executed can only be limited once, at first.
        assert {each[:2] for each in rights_of(recorder.pid)} == {
            each[:2] for each in given_up_but(RECORDING | WRITING)
        }
        recorder.interrupt()
        assert recorder.finish().code == ExitCode.OK


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("ticker")) as running:
        yield running


@pytest.mark.full
def test_serve_keeps_only_the_rights_that_it_needs(target: Target) -> None:
    with Server("--pid", str(target.pid)) as server:
        assert server.get("/debug/pprof/block?seconds=1").profile("block").samples
        assert rights_of(server.pid) == given_up_but(RECORDING)


def test_run_starts_the_program_with_the_original_rights(tmp_path: Path) -> None:
    ours = rights_of(os.getpid())
    command = [sys.executable, "-m", "ebpfprof", "run", "--profile", "block", "--"]
    with subprocess.Popen(
        [*command, str(program("ticker"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline().removeprefix("ready "))
        assert rights_of(child) == {next(iter(ours))}
        kept = given_up_but(RECORDING | WRITING | {"CAP_KILL"})
        assert rights_of(process.pid) == kept
        process.communicate()
    assert process.returncode == 0


def test_reading_memory_is_enough_for_profiles_without_bpf(
    checkout: Path, owners: Target, folder: Path
) -> None:
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--duration", "0.5"),
        *("--profile", "wall,goroutine"),
        rights=("sys_ptrace", "dac_read_search"),
    )
    assert output.code == ExitCode.OK, output.stderr
    profiles = {
        path.name.split(".")[1]: pprof.decode(path.read_bytes()) for path in folder.iterdir()
    }
    assert profiles.keys() == {"wall", "goroutine"}
    assert all(profile.samples for profile in profiles.values())
    # Together with a kind that takes BPF, what that lacks is named.
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--profile", "wall,block"),
        rights=("sys_ptrace", "dac_read_search"),
    )
    assert output.code == ExitCode.PERMISSION_DENIED
    assert "missing" in output.stderr


def test_no_right_is_enough_for_profiles_without_bpf_of_the_users_own(
    checkout: Path, owners: Target, folder: Path
) -> None:
    os.chown(folder, OWNER, OWNER)
    output = run(
        *(checkout, folder, "attach", "--pid", str(owners.pid), "--duration", "0.3"),
        *("--profile", "wall"),
        uid=OWNER,
        rights=(),
    )
    assert output.code == ExitCode.OK, output.stderr
