"""Messages for users, kernels and Python environments that ebpfprof cannot work with."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.builds import in_full
from tests.kernel import oldkernel
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.programs import program
from tests.kernel.refusal import refused
from tests.kernel.users import NOBODY, ROOT, by_user, ebpfprof, open_checkout, python_in
from tests.recorder import COMMAND, only_profile, run
from tests.targets_run import Target

SANDBOX = Path(__file__).parent / "sandbox.py"
CAPABILITIES = ("bpf", "perfmon", "sys_ptrace", "dac_read_search")


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    with open_checkout() as folder:
        yield folder


@pytest.fixture(scope="module")
def pid() -> Iterator[str]:
    """A Go program that can be recorded."""
    with Target.start(program("sleeper")) as target:
        yield str(target.pid)


def as_nobody_with(checkout: Path, *capabilities: str) -> tuple[str, ...]:
    """The command, run by an ordinary user with nothing but these capabilities."""
    return (*by_user(NOBODY, capabilities), *ebpfprof(checkout, "attach"))


def as_root_without(*capabilities: str) -> tuple[str, ...]:
    listed = ",".join(f"-{name}" for name in capabilities)
    return ("/usr/bin/setpriv", f"--bounding-set={listed}", *COMMAND)


def failing(call: str, code: str) -> tuple[str, ...]:
    return (sys.executable, str(SANDBOX), call, code, *COMMAND)


def hiding(folder: str) -> tuple[str, ...]:
    """The command, where a folder of /sys is empty and there are no links for probes."""
    script = f'mount --make-private /sys && mount -t tmpfs none {folder} && exec "$@"'
    isolating = ("/usr/bin/unshare", "--mount", "--propagation", "unchanged")
    return (*isolating, "/bin/sh", "-c", script, "sh", *oldkernel.COMMAND, "attach")


def test_the_required_capabilities_are_enough(checkout: Path, pid: str, tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    os.chmod(tmp_path.parent, 0o755)
    finished = run(
        *("--pid", pid, "--duration", "0.1"),
        folder=tmp_path,
        command=as_nobody_with(checkout, *CAPABILITIES),
    )
    assert finished.code == ExitCode.OK, finished.stderr
    only_profile(tmp_path)
    (written,) = tmp_path.iterdir()
    assert written.stat().st_uid == NOBODY


@pytest.mark.parametrize("missing", CAPABILITIES)
def test_a_missing_capability_is_named(
    missing: str, checkout: Path, pid: str, tmp_path: Path
) -> None:
    kept = [name for name in CAPABILITIES if name != missing]
    output = refused(
        ExitCode.PERMISSION_DENIED,
        *("--pid", pid),
        folder=tmp_path,
        command=as_nobody_with(checkout, *kept),
    )
    assert f" CAP_{missing.upper()} is missing. " in output
    assert output.endswith(
        f"Type:\n    sudo {python_in(checkout)} -I -m ebpfprof attach --max-overhead 0 "
        f"--profile block --pid {pid}"
    )


def test_root_without_capabilities_is_pointed_to_its_container(pid: str, tmp_path: Path) -> None:
    command = as_root_without("sys_admin", "bpf", "sys_ptrace")
    output = refused(ExitCode.PERMISSION_DENIED, "--pid", pid, folder=tmp_path, command=command)
    assert "CAP_BPF, CAP_SYS_PTRACE are missing" in output
    assert "sudo" not in output
    assert "container" in output


@NEEDS_NAMESPACES
def test_root_of_a_user_namespace_is_refused(pid: str, tmp_path: Path) -> None:
    command = ("/usr/bin/unshare", "--user", "--map-root-user", *COMMAND)
    output = refused(ExitCode.PERMISSION_DENIED, "--pid", pid, folder=tmp_path, command=command)
    assert "user namespace" in output


@pytest.mark.parametrize(
    ("call", "code", "exit_code", "words"),
    [
        ("bpf", "ENOSYS", ExitCode.KERNEL_UNSUPPORTED, "offers no BPF"),
        ("bpf", "EPERM", ExitCode.PERMISSION_DENIED, "does not let this user use BPF"),
        # BPF_PROG_LOAD, and BPF_LINK_CREATE as kernels before 5.15 know it.
        ("bpf:5", "EPERM", ExitCode.PERMISSION_DENIED, "load BPF programs"),
        ("bpf:28", "EINVAL", ExitCode.KERNEL_UNSUPPORTED, "Linux 5.15"),
        ("perf_event_open", "EACCES", ExitCode.PERMISSION_DENIED, "refused a perf event"),
        ("perf_event_open", "EMFILE", ExitCode.FAILURE, "RLIMIT_NOFILE"),
        ("perf_event_open", "ENOMEM", ExitCode.ATTACH_FAILED, "Cannot allocate memory"),
    ],
)
def test_refusals_of_the_kernel_have_their_own_errors(
    call: str, code: str, exit_code: ExitCode, words: str, pid: str, tmp_path: Path
) -> None:
    kind = "cpu" if call == "perf_event_open" else "block"
    arguments = ("--pid", pid, "--profile", kind)
    output = refused(exit_code, *arguments, folder=tmp_path, command=failing(call, code))
    assert words in output


@pytest.mark.parametrize(
    ("code", "exit_code", "words"),
    [
        ("EACCES", ExitCode.PERMISSION_DENIED, "refused a probe"),
        ("EMFILE", ExitCode.FAILURE, "RLIMIT_NOFILE"),
        *in_full(("ENOMEM", ExitCode.ATTACH_FAILED, "Cannot allocate memory")),
    ],
)
def test_refused_probes_of_old_kernels_have_their_own_errors(
    code: str, exit_code: ExitCode, words: str, pid: str, tmp_path: Path
) -> None:
    command = (*failing("perf_event_open", code)[:4], *oldkernel.COMMAND, "attach")
    output = refused(exit_code, "--pid", pid, folder=tmp_path, command=command)
    assert words in output


def test_a_kernel_without_uprobe_events_is_named(pid: str, tmp_path: Path) -> None:
    output = refused(
        ExitCode.KERNEL_UNSUPPORTED,
        *("--pid", pid),
        folder=tmp_path,
        command=hiding("/sys/bus/event_source"),
    )
    assert "CONFIG_UPROBE_EVENTS" in output


@pytest.fixture(scope="module")
def python_without_bcc(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has all but what the distribution installs."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    scheme = {"base": str(folder), "platbase": str(folder)}
    here = sysconfig.get_path("purelib", vars=scheme)
    Path(here, "all.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return str(python)


def test_a_missing_bcc_is_named_with_its_package(
    python_without_bcc: str, pid: str, tmp_path: Path
) -> None:
    output = refused(
        ExitCode.BCC_MISSING,
        *("--pid", pid),
        folder=tmp_path,
        command=(python_without_bcc, *COMMAND[1:]),
    )
    assert "--system-site-packages" in output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not the BPF Compiler Collection"),
        ("import ctypes\nctypes.CDLL('libbcc.so.none')", "libbcc.so.none"),
    ],
)
def test_a_foreign_module_called_bcc_is_recognised(
    content: str, words: str, pid: str, tmp_path: Path
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "bcc.py").write_text(content)
    output = refused(
        ExitCode.BCC_MISSING, "--pid", pid, folder=tmp_path, env={"PYTHONPATH": str(modules)}
    )
    assert words in output
    assert "python3-bpfcc" in output


def test_nothing_is_loaded_from_the_current_folder(pid: str, tmp_path: Path) -> None:
    for name in ("bcc", "click", "numpy", "symbolizer", "google", "capstone", "rich"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('from the current folder')")
    headers = (
        *("include/linux/types.h", "linux/types.h", "uapi/linux/bpf.h", "asm/page.h"),
        *("common/loss.h", "loss.h"),
    )
    for name in headers:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#error from the current folder\n")
    finished = run("--pid", pid, "--duration", "0.1", folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
