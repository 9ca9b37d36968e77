"""`ebpfprof doctor` on machines that lack a requirement."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebpfprof.commands.doctor import render, to_json, verdict
from ebpfprof.commands.doctor_checks import Check, CheckedMachine, Feature, examine, exit_code
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
LOCKDOWN, PTRACE_SCOPE = "sys/kernel/security/lockdown", "proc/sys/kernel/yama/ptrace_scope"
WORKING = tuple(Feature(name, lambda: None, "") for name in FEATURES)


@pytest.fixture(autouse=True)
def resources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's modules speak of a machine on which everything works."""
    uname = os.uname_result(("Linux", "host", "6.1.0-40-amd64", "#1 SMP", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1 << 20))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1 << 20, f_frsize=4096))


@pytest.fixture
def sound(tmp_path: Path) -> CheckedMachine:
    """A made-up machine on which everything works."""
    (tmp_path / "proc/sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "sys/kernel/security").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text("2\n")
    return CheckedMachine(
        root=tmp_path,
        missing_capabilities=list,
        in_first_user_namespace=lambda: True,
        sees_whole_machine=lambda: True,
        features=WORKING,
        btf=lambda: "there",
        bcc_versions=lambda: BccVersions("0.26.0", "14"),
        kernel_symbols=lambda: KernelSymbols(b"ffffffff81000000 T start\n"),
    )


def check(name: str, machine: CheckedMachine) -> Check:
    (check,) = (check for check in examine(machine) if check.name == name)
    return check


def raising(error: Exception) -> Callable[[], Any]:
    def fail() -> None:
        raise error

    return fail


def test_all_checks_pass_on_a_sound_machine(sound: CheckedMachine) -> None:
    checks = list(examine(sound))
    assert [check.name for check in checks if check.level != "ok"] == []
    assert exit_code(checks) == ExitCode.OK
    assert all(check.found and not check.remedy for check in checks)
    assert len({check.name for check in checks}) == len(checks)


@pytest.mark.parametrize("release", ["5.14.0-427.el9.x86_64", "4.19.0", "nonsense", ""])
def test_an_old_kernel_gets_a_warning(
    release: str, sound: CheckedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    uname = SimpleNamespace(release=release, machine="x86_64")
    monkeypatch.setattr(os, "uname", lambda: uname)
    kernel = check("kernel", sound)
    assert (kernel.level, kernel.found) == ("warn", f"Linux {release}")


@pytest.mark.parametrize("release", ["5.15.0-1", "5.100", "10.0"])
def test_kernel_versions_are_compared_as_numbers(
    release: str, sound: CheckedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    uname = SimpleNamespace(release=release, machine="x86_64")
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert check("kernel", sound).level == "ok"


def test_a_processor_that_is_not_x86_64_is_refused(
    sound: CheckedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    uname = SimpleNamespace(release="6.1.0", machine="aarch64")
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert check("processor", sound).code == ExitCode.KERNEL_UNSUPPORTED


def test_without_rights_features_are_skipped_and_the_right_named(sound: CheckedMachine) -> None:
    untried = tuple(Feature(name, lambda: pytest.fail("tried"), "") for name in FEATURES)
    bare = replace(sound, missing_capabilities=lambda: ["CAP_SYS_ADMIN"], features=untried)
    checks = list(examine(bare))
    assert exit_code(checks) == ExitCode.PERMISSION_DENIED
    assert "CAP_SYS_ADMIN" in check("rights", bare).found
    assert [check.level for check in checks if check.name in FEATURES] == ["warn"] * len(FEATURES)
    assert check("perf_event_paranoid", bare).level == "warn"


def test_root_of_a_user_namespace_has_no_rights(sound: CheckedMachine) -> None:
    inner = replace(sound, in_first_user_namespace=lambda: False)
    rights = check("rights", inner)
    assert (rights.level, rights.code) == ("missing", ExitCode.PERMISSION_DENIED)
    assert check(FEATURES[0], inner).level == "warn"


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
    error: Exception, level: str, code: ExitCode, sound: CheckedMachine
) -> None:
    probes = Feature("uprobes", raising(error), "Probes.")
    uprobes = check("uprobes", replace(sound, features=(probes,)))
    assert (uprobes.level, uprobes.code, uprobes.meaning) == (level, code, "Probes.")
    assert "Too old." in uprobes.remedy


def test_every_feature_that_recording_needs_is_checked() -> None:
    trials = {feature.trial for feature in CheckedMachine().features}
    assert trials == {getattr(features, name) for name in (*FEATURES, "sampling_event")}


def test_a_missing_btf_is_reported(sound: CheckedMachine) -> None:
    old = replace(sound, btf=raising(KernelUnsupported("No BTF.")))
    assert check("BTF", old).code == ExitCode.KERNEL_UNSUPPORTED


@pytest.mark.parametrize(
    ("text", "level", "found"),
    [
        ("[none] integrity confidentiality\n", "ok", "none"),
        ("none [integrity] confidentiality\n", "ok", "integrity"),
        ("none integrity [confidentiality]\n", "missing", "confidentiality"),
        ("", "ok", "none"),
    ],
)
def test_kernel_lockdown_is_reported(
    text: str, level: str, found: str, sound: CheckedMachine
) -> None:
    (sound.root / LOCKDOWN).write_text(text)
    lockdown = check("kernel lockdown", sound)
    assert (lockdown.level, lockdown.found) == (level, found)
    assert exit_code([lockdown]) == (ExitCode.KERNEL_UNSUPPORTED if level != "ok" else 0)


@pytest.mark.parametrize(("scope", "level"), [("0", "ok"), ("1", "ok"), ("2", "ok"), ("3", "warn")])
def test_yama_matters_only_if_it_restricts_root(
    scope: str, level: str, sound: CheckedMachine
) -> None:
    (sound.root / PTRACE_SCOPE).write_text(scope + "\n")
    assert check("Yama ptrace_scope", sound).level == level


def test_unreadable_settings_are_reported_as_not_known(sound: CheckedMachine) -> None:
    for path in (LOCKDOWN, PTRACE_SCOPE):
        (sound.root / path).mkdir()
    for name in ("kernel lockdown", "Yama ptrace_scope"):
        assert (check(name, sound).level, check(name, sound).found) == ("warn", "unknown")


def test_a_container_that_hides_processes_gets_a_warning(sound: CheckedMachine) -> None:
    visible = check("visible processes", replace(sound, sees_whole_machine=lambda: False))
    assert visible.level == "warn"
    assert "--pid=host" in visible.remedy


def test_a_missing_bcc_has_its_own_exit_code(sound: CheckedMachine) -> None:
    without = replace(sound, bcc_versions=raising(BccMissing()))
    bcc = check("BCC", without)
    assert (bcc.level, bcc.code) == ("missing", ExitCode.BCC_MISSING)
    assert "apt-get install python3-bpfcc" in bcc.remedy
    assert check("LLVM of BCC", without).level == "warn"


@pytest.mark.parametrize(
    ("llvm", "level"), [("11.1", "missing"), ("12", "ok"), ("19.1", "ok"), ("", "ok")]
)
def test_an_llvm_without_atomics_is_reported(llvm: str, level: str, sound: CheckedMachine) -> None:
    other = replace(sound, bcc_versions=lambda: BccVersions("0.18", llvm))
    assert check("LLVM of BCC", other).level == level


def test_packages_that_are_missing_or_too_old_are_named_with_the_command(
    sound: CheckedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ["here>=1.10", "old>=1.10.1", "gone>=2", "any", "other>=9; extra == 'x'"]
    there = {"here": "1.10.0", "old": "1.9.3", "any": "0"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "requires", lambda _: wanted)
    monkeypatch.setattr(metadata, "version", version)
    packages = check("Python packages", sound)
    assert (packages.level, packages.code) == ("missing", ExitCode.FAILURE)
    assert packages.found == "without old>=1.10.1, gone>=2"
    assert packages.remedy.endswith("-m pip install 'old>=1.10.1' 'gone>=2'")


def test_a_checkout_that_is_not_installed_gets_a_warning(
    sound: CheckedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert check("Python packages", sound).level == "warn"


def test_hidden_kernel_names_have_a_remedy(sound: CheckedMachine) -> None:
    symbols = KernelSymbols(b"0000000000000000 T start\n", "Type: sudo sysctl ...")
    names = check("kernel names", replace(sound, kernel_symbols=lambda: symbols))
    assert (names.level, names.remedy) == ("warn", "Type: sudo sysctl ...")


def test_resource_limits_are_reported(
    sound: CheckedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    assert check("open files", sound).level == "warn"
    assert check("locked memory", sound).level == "ok"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert check("open files", sound).found == check("locked memory", sound).found == "unlimited"


def test_a_full_or_read_only_folder_is_reported(
    sound: CheckedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1000, f_frsize=4096))
    assert (check("disk space", sound).level, check("disk space", sound).found) == ("warn", "3 MiB")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert check("disk space", sound).found == "not writable"


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


def test_doctor_json_has_all_checks_and_the_exit_code(sound: CheckedMachine) -> None:
    checks = list(examine(replace(sound, btf=raising(KernelUnsupported("No BTF.")))))
    read = json.loads(to_json(checks))
    assert (read["exit_code"], len(read["checks"])) == (10, len(checks))
    (btf,) = (row for row in read["checks"] if row["name"] == "BTF")
    assert btf == {
        "name": "BTF",
        "level": "missing",
        "found": "refused",
        "meaning": "The CPU profile reads fields of the kernel's own structs.",
        "remedy": "No BTF.",
        "exit_code": 10,
    }
    assert verdict(checks) == "Recording is not possible here. Missing: BTF."


def test_doctor_says_that_nothing_is_missing(sound: CheckedMachine) -> None:
    checks = list(examine(sound))
    assert json.loads(to_json(checks))["exit_code"] == ExitCode.OK
    assert verdict(checks) == "Nothing needed is missing."
