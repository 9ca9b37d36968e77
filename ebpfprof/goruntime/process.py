"""A target seen as a Go program: its tables, where it is loaded, where its probes go."""

import struct
from contextlib import ExitStack
from dataclasses import dataclass

from ebpfprof.console.text import printable
from ebpfprof.errors import CorruptBinary, NotGoProgram, UnsupportedGo, UnsupportedTarget
from ebpfprof.process.process import Target
from ebpfprof.profile.model import Mapping
from symbolizer import (
    ElfFile,
    GoBinary,
    GoTableError,
    NotGoError,
    SymbolizerError,
    UnsupportedElf,
    UnsupportedGoVersion,
)
from symbolizer.codeanalysis.cgo_callback import CgoCallback, cgo_callback
from symbolizer.codeanalysis.park_sites import ProbeSites, probe_sites
from symbolizer.codeanalysis.runtime_locks import RuntimeLockSites, runtime_lock_sites

_MAX_CHILDREN = 8


@dataclass(frozen=True, slots=True)
class GoProgram:
    """What a Go program's file tells, whatever process runs it. Holds the file open until close().

    Sites are linked addresses. `no_runtime_locks` is why `runtime_locks` are missing that were
    asked for.
    """

    binary: GoBinary
    sites: ProbeSites
    callback: CgoCallback | None
    runtime_locks: RuntimeLockSites | None = None
    no_runtime_locks: str | None = None

    def close(self) -> None:
        """Close the file: nothing can be read of it any more."""
        self.binary.elf.close()


@dataclass(frozen=True, slots=True)
class GoTarget:
    """What is needed to probe one Go process and to read its stacks.

    `load_bias` is runtime address minus linked address. Sites are linked addresses. `mappings`
    are the executable ones, the main binary first. `no_runtime_locks` is why `runtime_locks` are
    missing that were asked for.
    """

    target: Target
    binary: GoBinary
    load_bias: int
    mappings: tuple[Mapping, ...]
    sites: ProbeSites
    callback: CgoCallback | None
    runtime_locks: RuntimeLockSites | None = None
    no_runtime_locks: str | None = None

    def file_offset(self, pc: int) -> int:
        """Offset in bytes of the linked address `pc` in the executable file."""
        return self.binary.elf.vaddr_to_offset(pc)

    @property
    def assumption(self) -> str | None:
        """What is assumed of a Go version that is not known; None if it is."""
        version, layout = self.binary.version, self.binary.layout
        if layout.version == f"1.{version.minor}" and version.stage != "devel":
            return None
        return f"{printable(version.text)} is not known and was read as Go {layout.version}"


def inspect(
    target: Target, *, allow_unknown_go: bool = False, runtime_locks: bool = False
) -> GoTarget:
    """Read the target's executable and find the places to probe.

    The file stays open; see inspect_program. Raises what that and go_target do.
    """
    program = inspect_program(
        target, allow_unknown_go=allow_unknown_go, runtime_locks=runtime_locks
    )
    return go_target(target, program)


def inspect_program(
    target: Target, *, allow_unknown_go: bool = False, runtime_locks: bool = False
) -> GoProgram:
    """Read the target's executable and find the places to probe, for any process that runs it.

    Those for the runtime's own locks are found only if asked for, and not in every Go version.
    Raises NotGoProgram, UnsupportedGo, UnsupportedTarget or CorruptBinary.
    """
    with ExitStack() as held:
        try:
            with target.allowance:
                elf = held.enter_context(ElfFile.open(target.exe_fd, target.allowance))
                binary = GoBinary.open(elf, allow_unknown_version=allow_unknown_go)
                sites, callback = probe_sites(binary), cgo_callback(binary)
                locks, refusal = _runtime_locks(binary) if runtime_locks else (None, None)
        except (SymbolizerError, struct.error) as error:
            raise for_user(target, error) from error
        held.pop_all()
        return GoProgram(binary, sites, callback, locks, refusal)


def go_target(target: Target, program: GoProgram) -> GoTarget:
    """The target, seen as a process of the program that it runs. Raises TargetGone.

    What may be read of its files is one allowance for all processes of that program.
    """
    target.allowance = program.binary.elf.allowance
    binary, refusal = program.binary, program.no_runtime_locks
    return GoTarget(
        target,
        binary,
        target.load_bias(binary.elf.entry),
        target.executable_mappings(binary.elf.build_id),
        program.sites,
        program.callback,
        program.runtime_locks,
        refusal
        and (
            f"the Go runtime's own locks are not recorded in process {target.pid} "
            f"({printable(target.name)}): {refusal}"
        ),
    )


def _runtime_locks(binary: GoBinary) -> tuple[RuntimeLockSites | None, str | None]:
    """The places to probe, or in words why there are none."""
    try:
        return runtime_lock_sites(binary), None
    except (UnsupportedGoVersion, GoTableError) as error:
        return None, printable(str(error).rstrip("."))


def for_user(target: Target, error: Exception) -> Exception:
    """What an error means that came up while the target's executable was read."""
    where = f"{printable(target.exe_name)} (process {target.pid}): {str(error).rstrip('.')}."
    match error:
        case NotGoError():
            return NotGoProgram(
                f"{where} {_children(target.pid)} A program that was packed, with upx for "
                "example, can't be read."
            )
        case UnsupportedGoVersion():
            return UnsupportedGo(f"{where} Newer ones can be tried with --allow-unknown-go.")
        case UnsupportedElf():
            return UnsupportedTarget(where)
        case SymbolizerError() | struct.error():
            return CorruptBinary(f"{where} If the file is damaged, build it anew.")
    return error


def _children(pid: int) -> str:
    """What the user may have meant instead: a shell's or a supervisor's children, by name."""
    import psutil

    try:
        children = psutil.Process(pid).children(recursive=True)[:_MAX_CHILDREN]
        named = [f"{child.pid} ({printable(child.name())})" for child in children]
    except psutil.Error:
        named = []
    if not named:
        return "It has no child that could be meant instead."
    return f"Perhaps one of its children is meant: {', '.join(named)}."
