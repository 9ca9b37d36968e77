"""`ebpfprof doctor` on machines that lack a requirement."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ebpfprof.commands import doctor_checks
from ebpfprof.commands.cli import cli
from ebpfprof.commands.doctor import render
from ebpfprof.commands.doctor_checks import Check, examine, exit_code
from ebpfprof.errors import (
    AttachFailed,
    BccMissing,
    EbpfprofError,
    ExitCode,
    KernelUnsupported,
    PermissionDenied,
)
from ebpfprof.kernel import features
from ebpfprof.kernel.compiler import BccVersions
from ebpfprof.kernel.kallsyms import KernelSymbols

FEATURES = (
    "require_programs",
    "require_cookies",
    "require_batches",
    "require_ring_buffers",
    "require_uprobes",
)
OUR_FEATURES = doctor_checks._FEATURES  # the fixture below replaces it


@pytest.fixture(autouse=True)
def sound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A made-up machine on which everything works."""
    uname = os.uname_result(("Linux", "host", "6.1.0-40-amd64", "#1 SMP", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    monkeypatch.setattr(doctor_checks, "missing_capabilities", list)
    monkeypatch.setattr(doctor_checks, "in_first_user_namespace", lambda: True)
    monkeypatch.setattr(doctor_checks, "sees_whole_machine", lambda: True)
    monkeypatch.setattr(
        doctor_checks, "_FEATURES", tuple((name, lambda: None, "") for name in FEATURES)
    )
    monkeypatch.setattr(doctor_checks, "_btf", lambda: "there")
    monkeypatch.setattr(doctor_checks, "bcc_versions", lambda: BccVersions("0.26.0", "14"))
    monkeypatch.setattr(doctor_checks, "_LOCKDOWN", tmp_path / "lockdown")
    monkeypatch.setattr(doctor_checks, "_PTRACE_SCOPE", tmp_path / "ptrace_scope")
    monkeypatch.setattr(doctor_checks, "_PARANOID", tmp_path / "paranoid")
    (tmp_path / "paranoid").write_text("2\n")
    symbols = KernelSymbols(b"ffffffff81000000 T start\n")
    monkeypatch.setattr(KernelSymbols, "read", lambda: symbols)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1 << 20))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1 << 20, f_frsize=4096))


def check(name: str) -> Check:
    (found,) = (each for each in examine() if each.name == name)
    return found


def raising(error: Exception) -> Callable[[], str]:
    def fail() -> str:
        raise error

    return fail


def test_all_checks_pass_on_a_sound_machine() -> None:
    checks = list(examine())
    assert [each.name for each in checks if each.level != "ok"] == []
    assert exit_code(checks) == ExitCode.OK
    assert all(each.found and not each.remedy for each in checks)
    assert len({each.name for each in checks}) == len(checks)


@pytest.mark.parametrize("release", ["5.14.0-427.el9.x86_64", "4.19.0", "nonsense", ""])
def test_an_old_kernel_gets_a_warning(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uname = SimpleNamespace(release=release, machine="x86_64")
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert (check("kernel").level, check("kernel").found) == ("warn", f"Linux {release}")


@pytest.mark.parametrize("release", ["5.15.0-1", "5.100", "10.0"])
def test_kernel_versions_are_compared_as_numbers(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uname = SimpleNamespace(release=release, machine="x86_64")
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert check("kernel").level == "ok"


def test_a_processor_that_is_not_x86_64_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    uname = SimpleNamespace(release="6.1.0", machine="aarch64")
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert check("processor").code == ExitCode.KERNEL_UNSUPPORTED


def test_without_rights_features_are_skipped_and_the_right_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_checks, "missing_capabilities", lambda: ["CAP_SYS_ADMIN"])
    failing = tuple((name, lambda: pytest.fail("tried"), "") for name in FEATURES)
    monkeypatch.setattr(doctor_checks, "_FEATURES", failing)
    checks = list(examine())
    assert exit_code(checks) == ExitCode.PERMISSION_DENIED
    assert "CAP_SYS_ADMIN" in check("rights").found
    assert [each.level for each in checks if each.name in FEATURES] == ["warn"] * len(FEATURES)
    assert check("perf_event_paranoid").level == "warn"


def test_root_of_a_user_namespace_has_no_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "in_first_user_namespace", lambda: False)
    assert (check("rights").level, check("rights").code) == ("missing", ExitCode.PERMISSION_DENIED)
    assert check(FEATURES[0]).level == "warn"


@pytest.mark.parametrize(
    ("error", "level", "code"),
    [
        (KernelUnsupported("Too old."), "missing", ExitCode.KERNEL_UNSUPPORTED),
        (PermissionDenied("Too old."), "missing", ExitCode.PERMISSION_DENIED),
        (AttachFailed("Too old."), "missing", ExitCode.ATTACH_FAILED),
        (EbpfprofError("Too old."), "missing", ExitCode.FAILURE),
        (OSError(24, "Too old."), "warn", ExitCode.OK),
        (ImportError("Too old."), "warn", ExitCode.OK),
        (features.Untried("Too old."), "warn", ExitCode.OK),
    ],
)
def test_a_failing_feature_check_has_the_reason(
    error: Exception, level: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "_FEATURES", (("uprobes", raising(error), "Probes."),))
    found = check("uprobes")
    assert (found.level, found.code, found.meaning) == (level, code, "Probes.")
    assert "Too old." in found.remedy


def test_every_feature_that_recording_needs_is_checked() -> None:
    tried = {trial for _, trial, _ in OUR_FEATURES}
    assert tried == {getattr(features, name) for name in (*FEATURES, "sampling_event")}


def test_a_missing_btf_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_btf", raising(KernelUnsupported("No BTF.")))
    assert check("BTF").code == ExitCode.KERNEL_UNSUPPORTED


@pytest.mark.parametrize(
    ("text", "level", "found"),
    [
        ("[none] integrity confidentiality\n", "ok", "none"),
        ("none [integrity] confidentiality\n", "ok", "integrity"),
        ("none integrity [confidentiality]\n", "missing", "confidentiality"),
        ("", "ok", "none"),
    ],
)
def test_kernel_lockdown_is_reported(text: str, level: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "lockdown").write_text(text)
    lockdown = check("kernel lockdown")
    assert (lockdown.level, lockdown.found) == (level, found)
    assert exit_code([lockdown]) == (ExitCode.KERNEL_UNSUPPORTED if level != "ok" else 0)


@pytest.mark.parametrize(("scope", "level"), [("0", "ok"), ("1", "ok"), ("2", "ok"), ("3", "warn")])
def test_yama_matters_only_if_it_restricts_root(scope: str, level: str, tmp_path: Path) -> None:
    (tmp_path / "ptrace_scope").write_text(scope + "\n")
    assert check("Yama ptrace_scope").level == level


def test_unreadable_settings_are_reported_as_not_known(tmp_path: Path) -> None:
    for name in ("lockdown", "ptrace_scope"):
        (tmp_path / name).mkdir()
    for name in ("kernel lockdown", "Yama ptrace_scope"):
        assert (check(name).level, check(name).found) == ("warn", "unknown")


def test_a_container_that_hides_processes_gets_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "sees_whole_machine", lambda: False)
    assert check("visible processes").level == "warn"
    assert "--pid=host" in check("visible processes").remedy


def test_a_missing_bcc_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> BccVersions:
        raise BccMissing

    monkeypatch.setattr(doctor_checks, "bcc_versions", missing)
    assert (check("BCC").level, check("BCC").code) == ("missing", ExitCode.BCC_MISSING)
    assert "apt-get install python3-bpfcc" in check("BCC").remedy
    assert check("LLVM of BCC").level == "warn"


@pytest.mark.parametrize(
    ("llvm", "level"), [("11.1", "missing"), ("12", "ok"), ("19.1", "ok"), ("", "ok")]
)
def test_an_llvm_without_atomics_is_reported(
    llvm: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "bcc_versions", lambda: BccVersions("0.18", llvm))
    assert check("LLVM of BCC").level == level


def test_packages_that_are_missing_or_too_old_are_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = ["here>=1.10", "old>=1.10.1", "gone>=2", "any", "other>=9; extra == 'x'"]
    there = {"here": "1.10.0", "old": "1.9.3", "any": "0"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    monkeypatch.setattr(metadata, "version", version)
    packages = check("Python packages")
    assert (packages.level, packages.code) == ("missing", ExitCode.FAILURE)
    assert packages.found == "without old>=1.10.1, gone>=2"
    assert packages.remedy.endswith("-m pip install 'old>=1.10.1' 'gone>=2'")


def test_a_checkout_that_is_not_installed_gets_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert check("Python packages").level == "warn"


def test_hidden_kernel_names_have_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = KernelSymbols(b"0000000000000000 T start\n", "Type: sudo sysctl ...")
    monkeypatch.setattr(KernelSymbols, "read", lambda: symbols)
    found = check("kernel names")
    assert (found.level, found.remedy) == ("warn", "Type: sudo sysctl ...")


def test_resource_limits_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    assert check("open files").level == "warn"
    assert check("locked memory").level == "ok"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert check("open files").found == check("locked memory").found == "unlimited"


def test_a_full_or_read_only_folder_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1000, f_frsize=4096))
    assert (check("disk space").level, check("disk space").found) == ("warn", "3 MiB")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert check("disk space").found == "not writable"


def test_the_exit_code_is_that_of_the_hardest_fix() -> None:
    order = [10, 11, 4, 13, 1]
    checks = [Check("x", "missing", "", "", "", ExitCode(code)) for code in order]
    for first, code in enumerate(order):
        assert exit_code(checks[first:][::-1]) == code
    warned = Check("x", "warn", "", "", "", ExitCode.KERNEL_UNSUPPORTED)
    assert exit_code([warned]) == ExitCode.OK


@pytest.mark.parametrize("width", [None, 80, 40])
def test_missing_requirements_have_their_remedy_below(width: int | None) -> None:
    checks = [
        Check("uprobes", "ok", "works", "Probes are taken."),
        Check("BCC", "missing", "no\x1b[2Jne", "It compiles.", "Type: [red]apt\nand \x1b[2Jmore."),
    ]
    lines = render(checks, width, color=False).splitlines()
    assert lines[0].split() == ["ok", "uprobes", "works"]
    assert lines[1].split() == ["missing", "BCC", "no\\x1b[2Jne"]
    rest = " ".join(" ".join(lines[2:]).split())
    assert rest == "It compiles. Type: [red]apt and \\x1b[2Jmore."


def test_doctor_json_has_all_checks_and_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_btf", raising(KernelUnsupported("No BTF.")))
    result = CliRunner().invoke(cli, ["doctor", "--json"], standalone_mode=False)
    assert result.return_value == ExitCode.KERNEL_UNSUPPORTED
    read = json.loads(result.stdout)
    assert read["exit_code"] == 10
    (btf,) = (each for each in read["checks"] if each["name"] == "BTF")
    assert btf == {
        "name": "BTF",
        "level": "missing",
        "found": "refused",
        "meaning": "The CPU profile reads fields of the kernel's own structs.",
        "remedy": "No BTF.",
        "exit_code": 10,
    }
    output = CliRunner().invoke(cli, ["doctor"], standalone_mode=False).stdout
    assert output.endswith("\nRecording is not possible here. Missing: BTF.\n")


def test_doctor_says_that_nothing_is_missing() -> None:
    result = CliRunner().invoke(cli, ["doctor"], standalone_mode=False)
    assert result.return_value == ExitCode.OK
    assert result.stdout.endswith("\nNothing needed is missing.\n")
