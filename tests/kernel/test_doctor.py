"""`ebpfprof doctor` on this machine, and where a requirement is missing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.kernel import features, uprobe_links
from tests.builds import in_full
from tests.kernel import oldkernel
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.users import as_nobody
from tests.kernel.verbs import PYTHON, Said, verb

# Where there are links for them, probes take no perf event.
PERF_UPROBES = () if uprobe_links.is_offered() else ("uprobes",)
SANDBOX = Path(__file__).parent / "sandbox.py"


def checks(said: Said) -> dict[str, dict[str, Any]]:
    """What `doctor --json` found, by name."""
    read = json.loads(said.stdout)
    assert read["exit_code"] == said.code
    assert said.stderr == ""
    return {each["name"]: each for each in read["checks"]}


def failing(call: str, code: str) -> tuple[str, ...]:
    return (sys.executable, str(SANDBOX), call, code, *PYTHON)


def test_doctor_finds_all_requirements_of_the_test_machine(tmp_path: Path) -> None:
    output = verb("doctor", folder=tmp_path)
    assert output.code == ExitCode.OK, output.stdout
    assert output.stderr == ""
    assert "Nothing needed is missing." in output.stdout
    assert list(tmp_path.iterdir()) == []
    found = checks(verb("doctor", "--json"))
    assert [name for name, each in found.items() if each["level"] == "missing"] == []
    assert found["CPU sampling"]["found"] in ("ref-cycles", "cpu-clock")
    assert found["uprobes"]["found"] == "works"


def test_feature_checks_leave_no_bpf_file_open() -> None:
    before = open_files_of_bpf()
    features.require_programs()
    features.require_cookies()
    features.require_ring_buffers()
    features.require_batches()
    features.require_uprobes()
    features.sampling_event()
    assert open_files_of_bpf() == before


def open_files_of_bpf() -> list[str]:
    """What is open of BPF and of perf in this process."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the one that listed them
            continue
        if "bpf" in name or "perf" in name:
            found.append(name)
    return found


@pytest.mark.parametrize(
    ("call", "code", "exit_code", "missing"),
    [
        (
            *("bpf", "ENOSYS", ExitCode.KERNEL_UNSUPPORTED),
            {"BPF programs", "BPF attach cookies", "BPF batches", "BPF ring buffer"},
        ),
        (
            *("bpf", "EPERM", ExitCode.PERMISSION_DENIED),
            {"BPF programs", "BPF attach cookies", "BPF batches", "BPF ring buffer"},
        ),
        # BPF_PROG_LOAD, BPF_LINK_CREATE as kernels before 5.15 know it, BPF_MAP_LOOKUP_BATCH.
        *in_full(
            (
                *("bpf:5", "EPERM", ExitCode.PERMISSION_DENIED),
                {"BPF programs", "BPF attach cookies"},
            ),
            ("bpf:28", "EINVAL", ExitCode.KERNEL_UNSUPPORTED, {"BPF attach cookies"}),
        ),
        ("bpf:24", "EINVAL", ExitCode.KERNEL_UNSUPPORTED, {"BPF batches"}),
        (
            *("perf_event_open", "EACCES", ExitCode.PERMISSION_DENIED),
            {"BPF attach cookies", "CPU sampling", *PERF_UPROBES},
        ),
        (
            *("perf_event_open", "ENOMEM", ExitCode.ATTACH_FAILED),
            {"BPF attach cookies", "CPU sampling", *PERF_UPROBES},
        ),
    ],
)
def test_features_that_the_kernel_refuses_are_named(
    call: str, code: str, exit_code: ExitCode, missing: set[str]
) -> None:
    output = verb("doctor", "--json", command=failing(call, code))
    found = checks(output)
    assert output.code == exit_code
    assert {name for name, each in found.items() if each["level"] == "missing"} == missing
    assert all(found[name]["remedy"] for name in missing)


def test_a_kernel_without_uprobe_events_is_named() -> None:
    script = 'mount --make-private /sys && mount -t tmpfs none /sys/bus/event_source && exec "$@"'
    isolating = ("/usr/bin/unshare", "--mount", "--propagation", "unchanged")
    output = verb("doctor", command=(*isolating, "/bin/sh", "-c", script, "sh", *oldkernel.COMMAND))
    assert output.code == ExitCode.KERNEL_UNSUPPORTED
    assert "CONFIG_UPROBE_EVENTS" in output.stdout
    assert "Missing: uprobes." in output.stdout


def test_an_ordinary_user_gets_a_sudo_command() -> None:
    with as_nobody() as command:
        output = verb("doctor", "--json", command=command)
    found = checks(output)
    assert output.code == ExitCode.PERMISSION_DENIED
    assert found["rights"]["found"].startswith("without CAP_BPF, ")
    assert found["rights"]["remedy"].startswith("Type:\n    sudo ")
    assert found["rights"]["remedy"].endswith(" -I -m ebpfprof doctor --json")
    assert found["uprobes"]["level"] == "warn"
    assert found["BCC"]["level"] == "ok"


def test_root_without_capabilities_is_pointed_to_its_container() -> None:
    command = ("/usr/bin/setpriv", "--bounding-set=-sys_ptrace", *PYTHON)
    output = verb("doctor", "--json", command=command)
    assert output.code == ExitCode.PERMISSION_DENIED
    assert checks(output)["rights"]["found"] == "without CAP_SYS_PTRACE"
    assert "container" in checks(output)["rights"]["remedy"]


@NEEDS_NAMESPACES
def test_root_of_a_user_namespace_has_no_rights() -> None:
    output = verb("doctor", command=("/usr/bin/unshare", "--user", "--map-root-user", *PYTHON))
    assert output.code == ExitCode.PERMISSION_DENIED
    assert "root of a user namespace" in output.stdout


@NEEDS_NAMESPACES
def test_a_container_hides_the_other_processes() -> None:
    isolating = ("/usr/bin/unshare", "--mount-proc", "--pid", "--fork", "--kill-child")
    output = verb("doctor", "--json", command=(*isolating, *PYTHON))
    assert output.code == ExitCode.OK
    assert checks(output)["visible processes"]["level"] == "warn"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not the BPF Compiler Collection"),
        ("import ctypes\nctypes.CDLL('libbcc.so.none')", "libbcc.so.none"),
        ("print 'of Python 2'", "are missing"),
    ],
)
def test_a_foreign_module_called_bcc_is_recognised(
    content: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "bcc.py").write_text(content)
    output = verb("doctor", "--json", env={"PYTHONPATH": str(tmp_path)})
    found = checks(output)
    assert output.code == ExitCode.BCC_MISSING
    assert words in found["BCC"]["remedy"]
    assert "python3-bpfcc" in found["BCC"]["remedy"]
    assert found["LLVM of BCC"]["level"] == "warn"


def test_doctor_runs_without_the_libraries_it_checks(tmp_path: Path) -> None:
    for name in ("numpy", "capstone", "psutil", "rich", "cxxfilt", "starlette"):
        (tmp_path / f"{name}.py").write_text("raise ModuleNotFoundError(f'No module {__name__}')")
    found = checks(verb("doctor", "--json", env={"PYTHONPATH": str(tmp_path)}))
    assert (found["uprobes"]["level"], found["BPF programs"]["level"]) == ("warn", "ok")
    assert "No module " in found["uprobes"]["remedy"]
    output = verb("doctor", env={"PYTHONPATH": str(tmp_path)})
    assert "No module " in output.stdout
