"""Checks whether profiles can be recorded here, and how to fix what is missing.

The checks try kernel features (kernel.features), and do not guess what a missing right hides.
Packages that may not be installed are imported where they are needed.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ebpfprof.discovery.containers import container_of
from ebpfprof.errors import (
    AttachFailed,
    BccMissing,
    EbpfprofError,
    ExitCode,
)
from ebpfprof.kernel import btf, features, packaged_programs
from ebpfprof.kernel.compiler import BccVersions, bcc_versions
from ebpfprof.privileges.checks import in_first_user_namespace, missing_capabilities, way_out
from ebpfprof.system.pid_namespace import sees_whole_machine

if TYPE_CHECKING:
    from ebpfprof.kernel.kallsyms import KernelSymbols

Level = Literal["ok", "warn", "missing"]

_OLDEST_KERNEL = (5, 15)
_OLDEST_LLVM = 12
_FILES_OF_A_TARGET = 64
_LITTLE_SPACE_BYTES = 100 << 20
_LOCKDOWN = "sys/kernel/security/lockdown"
_PARANOID = "proc/sys/kernel/perf_event_paranoid"
_PTRACE_SCOPE = "proc/sys/kernel/yama/ptrace_scope"
_TRACEFS = "sys/kernel/tracing/trace"
_NUMBERS = re.compile(r"[0-9]+")
_REQUIREMENT = re.compile(r"([\w.-]+) *(?:>= *([0-9.]+))?")
_NOT_TRIED = "not tried: the rights above are missing"

# The hardest to fix comes first.
_GRAVITY = (
    ExitCode.KERNEL_UNSUPPORTED,
    ExitCode.BCC_MISSING,
    ExitCode.PERMISSION_DENIED,
    ExitCode.ATTACH_FAILED,
    ExitCode.FAILURE,
)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check: what was `found`, and why it matters (`meaning`).

    `remedy` is what to do unless the level is "ok". `code` is the exit code of a recording if the
    level is "missing". What has the level "warn" is optional.
    """

    name: str
    level: Level
    found: str
    meaning: str
    remedy: str = ""
    code: ExitCode = ExitCode.OK


def _kernel_symbols() -> KernelSymbols:
    from ebpfprof.kernel.kallsyms import KernelSymbols

    return KernelSymbols.read()


def _btf() -> str:
    btf.field_offset("task_struct", "mm")
    return "available"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the kernel that recordings need, and why.

    `trial` returns what was found, None if that is no more than that it works. It raises an
    EbpfprofError if the feature is missing; OSError, ImportError or features.Untried if that can't
    be known.
    """

    name: str
    trial: Callable[[], str | None]
    meaning: str


FEATURES: Final = (
    Feature("BPF programs", features.require_programs, "BPF programs do all recording."),
    Feature(
        "BPF attach cookies",
        features.require_cookies,
        "One program serves any number of targets.",
    ),
    Feature("BPF batches", features.require_batches, "Recorded data is read in batches."),
    Feature(
        "BPF ring buffer",
        features.require_ring_buffers,
        "The CPU profile gets its unwinding rules with it.",
    ),
    Feature("uprobes", features.require_uprobes, "Block and mutex profiles use probes."),
    Feature(
        "CPU sampling",
        features.sampling_event,
        "A processor counter (ref-cycles) or a timer (cpu-clock) triggers samples.",
    ),
)


@dataclass(frozen=True, slots=True)
class CheckedMachine:
    """What the checks ask of a machine, by default of this one."""

    root: Path = Path("/")
    missing_capabilities: Callable[[], Sequence[str]] = missing_capabilities
    in_first_user_namespace: Callable[[], bool] = in_first_user_namespace
    sees_whole_machine: Callable[[], bool] = sees_whole_machine
    features: tuple[Feature, ...] = FEATURES
    btf: Callable[[], str] = _btf
    bcc_versions: Callable[[], BccVersions] = bcc_versions
    kernel_symbols: Callable[[], KernelSymbols] = _kernel_symbols


def examine(machine: CheckedMachine | None = None) -> Iterator[Check]:
    """All checks, in the order in which to fix problems. Raises no EbpfprofError."""
    machine = machine or CheckedMachine()
    missing = machine.missing_capabilities()
    in_first = machine.in_first_user_namespace()
    may_try = not missing and in_first
    yield _kernel()
    yield _processor()
    yield _rights(missing, in_first)
    yield _lockdown(machine.root / _LOCKDOWN)
    yield _container(machine.sees_whole_machine())
    for feature in machine.features:
        yield _tried(feature) if may_try else _not_tried(feature)
    meaning = "The CPU profile reads fields of the kernel's own structs."
    yield _tried(Feature("BTF", machine.btf, meaning))
    programs = _programs()
    is_compiled = programs.level == "ok" and bool(packaged_programs.checksums())
    yield programs
    yield _bcc(machine.bcc_versions, is_needed=not is_compiled)
    yield _llvm(machine.bcc_versions, is_needed=not is_compiled)
    yield from _packages()
    yield _paranoid(machine.root / _PARANOID, may_try)
    yield _kernel_names(machine.kernel_symbols)
    yield _ptrace_scope(machine.root / _PTRACE_SCOPE)
    yield _open_files()
    yield _locked_memory()
    yield _tracefs(machine.root / _TRACEFS)
    yield _disk()


def exit_code(checks: Sequence[Check]) -> ExitCode:
    """OK if nothing is missing, else the code of the problem that is hardest to fix."""
    codes = [check.code for check in checks if check.level == "missing"]
    return min(codes, key=_GRAVITY.index, default=ExitCode.OK)


def _tried(feature: Feature) -> Check:
    """Try a feature. The message of an EbpfprofError has the remedy."""
    name, meaning = feature.name, feature.meaning
    try:
        return Check(name, "ok", feature.trial() or "works", meaning)
    except EbpfprofError as error:
        code = error.exit_code if error.exit_code in _GRAVITY else ExitCode.FAILURE
        return Check(name, "missing", "refused", meaning, str(error), ExitCode(code))
    except (OSError, ImportError, features.Untried) as error:
        return Check(name, "warn", "not tried", meaning, f"It failed: {error}.")


def _not_tried(feature: Feature) -> Check:
    return Check(feature.name, "warn", _NOT_TRIED, feature.meaning)


def _kernel() -> Check:
    release = os.uname().release
    numbers = tuple(int(number) for number in _NUMBERS.findall(release)[:2])
    meaning = "Linux 5.15 added attach cookies for perf events."
    if numbers >= _OLDEST_KERNEL:
        return Check("kernel", "ok", f"Linux {release}", meaning)
    return Check(
        "kernel",
        "warn",
        f"Linux {release}",
        meaning,
        "Use a newer kernel, unless the vendor backported attach cookies (see below).",
    )


def _processor() -> Check:
    machine = os.uname().machine
    meaning = "Only x86-64 programs can be profiled."
    if machine == "x86_64":
        return Check("processor", "ok", machine, meaning)
    remedy = "Run ebpfprof on a 64-bit x86 machine."
    return Check("processor", "missing", machine, meaning, remedy, ExitCode.KERNEL_UNSUPPORTED)


def _rights(missing: Sequence[str], in_first_namespace: bool) -> Check:
    meaning = "ebpfprof traces other processes and reads their files."
    code = ExitCode.PERMISSION_DENIED
    if missing:
        state = f"without {', '.join(missing)}"
        return Check("rights", "missing", state, meaning, way_out(), code)
    if not in_first_namespace:
        remedy = "Run ebpfprof as root of the machine, outside the container."
        return Check("rights", "missing", "root of a user namespace", meaning, remedy, code)
    return Check("rights", "ok", "all needed rights", meaning)


def _lockdown(path: Path) -> Check:
    meaning = "A kernel locked down for confidentiality refuses all tracing."
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Check("kernel lockdown", "ok", "none", meaning)
    except OSError as error:
        return _unreadable("kernel lockdown", path, error, meaning)
    chosen = re.search(r"\[(\w+)\]", text)
    mode = chosen[1] if chosen else "none"
    if mode != "confidentiality":
        return Check("kernel lockdown", "ok", mode, meaning)
    remedy = (
        "Remove lockdown=confidentiality from the kernel's command line and reboot "
        "(lockdown=integrity is fine)."
    )
    code = ExitCode.KERNEL_UNSUPPORTED
    return Check("kernel lockdown", "missing", mode, meaning, remedy, code)


def _container(sees_all: bool) -> Check:
    meaning = "In a container, only its own processes are visible."
    try:
        own = container_of(Path("/proc/self/cgroup").read_text(errors="replace"))
    except OSError:
        own = None
    where = f"container {own.id[:12]}" if own else "container"
    if sees_all:
        return Check("visible processes", "ok", "all of the machine", meaning)
    return Check(
        "visible processes",
        "warn",
        f"those of this {where}",
        meaning,
        "To profile others, run ebpfprof on the host, or share the host's pids with the container "
        "(docker run --pid=host; hostPID: true in Kubernetes).",
    )


def _programs() -> Check:
    name, meaning = "compiled BPF programs", "With those of a release, BCC is not needed."
    try:
        count = packaged_programs.check()
    except AttachFailed as error:
        return Check(name, "missing", "damaged", meaning, str(error), ExitCode.ATTACH_FAILED)
    if not count:
        return Check(name, "ok", "none: BCC compiles", meaning)
    return Check(name, "ok", f"{count}, by {packaged_programs.compiler()}", meaning)


def _bcc(versions: Callable[[], BccVersions], *, is_needed: bool) -> Check:
    meaning = "It compiles the BPF programs."
    try:
        version = versions().bcc
    except BccMissing as error:
        if not is_needed:
            return Check("BCC", "ok", "none, and not needed", meaning)
        return Check("BCC", "missing", "none", meaning, str(error), ExitCode.BCC_MISSING)
    return Check("BCC", "ok", version or "unknown version", meaning)


def _llvm(versions: Callable[[], BccVersions], *, is_needed: bool) -> Check:
    meaning = f"The BPF programs use atomic operations, which need LLVM {_OLDEST_LLVM}."
    try:
        version = versions().llvm
    except BccMissing:
        level: Level = "warn" if is_needed else "ok"
        return Check("LLVM of BCC", level, "unknown without BCC", meaning)
    numbers = _NUMBERS.findall(version)
    if not numbers:
        return Check("LLVM of BCC", "ok", "unknown version", meaning)
    if int(numbers[0]) >= _OLDEST_LLVM:
        return Check("LLVM of BCC", "ok", version, meaning)
    remedy = "Install a newer BCC (Debian 12 and Ubuntu 22.04 have one)."
    return Check("LLVM of BCC", "missing", version, meaning, remedy, ExitCode.BCC_MISSING)


def _packages() -> Iterator[Check]:
    """One check for all packages, against the requirements of the installed ebpfprof."""
    meaning = "Libraries that ebpfprof uses."
    try:
        wanted = metadata.requires("ebpfprof") or []
    except metadata.PackageNotFoundError:
        remedy = "Install ebpfprof (pip install .), which also installs its requirements."
        yield Check("Python packages", "warn", "ebpfprof is not installed", meaning, remedy)
        return
    lacking = list(filter(None, map(_lacking, wanted)))
    if lacking:
        typed = shlex.join([sys.executable, "-m", "pip", "install", *lacking])
        state = f"without {', '.join(lacking)}"
        code = ExitCode.FAILURE
        yield Check("Python packages", "missing", state, meaning, f"Type: {typed}", code)
    else:
        yield Check("Python packages", "ok", f"all {len(wanted)}", meaning)


def _lacking(requirement: str) -> str:
    """The requirement if it is not met, else ""; requirements with a marker are ignored."""
    match = _REQUIREMENT.match(requirement)
    if match is None or ";" in requirement:
        return ""
    name, least = match.groups()
    try:
        installed = _version(metadata.version(name))
    except metadata.PackageNotFoundError:
        return match[0]
    return match[0] if least and installed < _version(least) else ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(text)[:3])


def _paranoid(path: Path, may_try: bool) -> Check:
    meaning = "It limits perf events for users without rights."
    try:
        level = path.read_text().strip()
    except OSError as error:
        return _unreadable("perf_event_paranoid", path, error, meaning)
    if may_try:
        return Check("perf_event_paranoid", "ok", f"{level}, no limit for root", meaning)
    return Check("perf_event_paranoid", "warn", level, meaning, "As root, it has no effect.")


def _kernel_names(read: Callable[[], KernelSymbols]) -> Check:
    meaning = "The CPU profile shows kernel functions by name."
    try:
        symbols = read()
    except ImportError as error:
        return Check("kernel names", "warn", "unknown", meaning, f"It failed: {error}.")
    if symbols.hidden:
        return Check("kernel names", "warn", "hidden", meaning, symbols.hidden_text)
    return Check("kernel names", "ok", "shown (kptr_restrict)", meaning)


def _ptrace_scope(path: Path) -> Check:
    meaning = "--open reads the target's memory."
    try:
        scope = path.read_text().strip()
    except FileNotFoundError:
        return Check("Yama ptrace_scope", "ok", "no Yama", meaning)
    except OSError as error:
        return _unreadable("Yama ptrace_scope", path, error, meaning)
    if scope != "3":
        return Check("Yama ptrace_scope", "ok", scope, meaning)
    remedy = (
        "Set kernel.yama.ptrace_scope to 2 in /etc/sysctl.d and reboot: a running kernel does not "
        "lower it. Everything but --open works."
    )
    return Check("Yama ptrace_scope", "warn", scope, meaning, remedy)


def _open_files() -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    meaning = "Each probe needs two open files, a process about fifty."
    if hard == resource.RLIM_INFINITY or hard >= 16 * _FILES_OF_A_TARGET:
        limit = "unlimited" if hard == resource.RLIM_INFINITY else f"up to {hard}"
        return Check("open files", "ok", limit, meaning)
    remedy = "For many processes at once, raise the hard limit: ulimit -Hn 65536"
    return Check("open files", "warn", f"up to {hard}", meaning, remedy)


def _locked_memory() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    meaning = "Since Linux 5.11, BPF maps don't count against it."
    return Check("locked memory", "ok", limit, meaning)


def _tracefs(path: Path) -> Check:
    state = "mounted" if os.path.exists(path) else "not mounted"
    return Check("tracefs", "ok", state, "Not needed: probes are links or perf events.")


def _disk() -> Check:
    meaning = "By default, profiles are written into the current folder."
    try:
        space = os.statvfs(".")
    except OSError as error:
        return Check(
            "disk space", "warn", f"unknown ({error.strerror})", meaning, "Use another folder."
        )
    free_bytes = space.f_bavail * space.f_frsize
    free = f"{free_bytes >> 20} MiB"
    if not os.access(".", os.W_OK):
        return Check("disk space", "warn", "not writable", meaning, "Use another folder, or -o.")
    if free_bytes < _LITTLE_SPACE_BYTES:
        remedy = "Free some space, or use -o."
        return Check("disk space", "warn", free, meaning, remedy)
    return Check("disk space", "ok", free, meaning)


def _unreadable(name: str, path: Path, error: OSError, meaning: str) -> Check:
    return Check(name, "warn", "unknown", meaning, f"{path} can't be read: {error.strerror}.")
