"""A target as a Go program: its tables, its load address, the places for its probes."""

import struct
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from ebpfprof.console.text import printable
from ebpfprof.errors import CorruptBinary, NotGoProgram, UnsupportedGo, UnsupportedTarget
from ebpfprof.goruntime.plugins import (
    GoPlugin,
    PluginModule,
    ProbedCode,
    open_plugins,
    plugin_modules,
    with_plugin_code,
    with_plugins,
)
from ebpfprof.goruntime.runtimes import GoRuntime, executable_of
from ebpfprof.process.process import Target
from ebpfprof.profile.model import Mapping
from symbolizer import (
    GoBinary,
    GoTableError,
    NotGoError,
    ObfuscatedProgram,
    PackedProgram,
    SymbolizerError,
    UnsupportedElf,
    UnsupportedGoVersion,
)
from symbolizer.codeanalysis.cgo_callback import CgoCallback, cgo_callback
from symbolizer.codeanalysis.park_sites import ProbeSites, probe_sites
from symbolizer.codeanalysis.runtime_locks import RuntimeLockSites, runtime_lock_sites
from symbolizer.codeanalysis.tls import g_offset
from symbolizer.go.runtime_layout import layout_for

_MAX_CHILDREN = 8
_WORD_BYTES = 8


class ProbePlaces(NamedTuple):
    """Where a program is probed, as linked addresses.

    `no_runtime_locks` says why `runtime_locks` are missing although the options ask for them.
    """

    sites: ProbeSites
    callback: CgoCallback | None
    runtime_locks: RuntimeLockSites | None = None
    no_runtime_locks: str | None = None


class GoProgram:
    """What a file with a Go runtime has: the same for each process that runs it.

    The file stays open until close(). Any thread may use it.
    """

    def __init__(self, binary: GoBinary, *, runtime_locks: bool = False) -> None:
        """With `runtime_locks`, the places for the runtime's own locks are wanted, too."""
        self.binary = binary
        self._runtime_locks = runtime_locks
        self._lock = threading.Lock()
        self._places: ProbePlaces | None = None

    def places(self) -> ProbePlaces:
        """The places to probe: searched for once, by the first that needs them.

        Raises SymbolizerError or struct.error.
        """
        with self._lock, self.binary.elf.allowance:
            if self._places is None:
                sites, callback = probe_sites(self.binary), cgo_callback(self.binary)
                locks = _runtime_locks(self.binary) if self._runtime_locks else (None, None)
                self._places = ProbePlaces(sites, callback, *locks)
            return self._places

    def close(self) -> None:
        """Close the file: nothing can be read from it any more."""
        self.binary.elf.close()


@dataclass(frozen=True, slots=True)
class GoCode:
    """The Go code of a process: `binary` also knows the code of its `plugins`.

    `path` is the file of its `binary`, the executable or a library. `load_bias` is runtime address
    minus linked address. `modules` are all plugins that the process has, also those that can't be
    read.
    """

    path: str
    binary: GoBinary
    load_bias: int
    modules: tuple[PluginModule, ...] = ()
    plugins: tuple[GoPlugin, ...] = ()


@dataclass(frozen=True, slots=True)
class GoTarget:
    """What we need to probe one Go process and to read its stacks.

    `path` is the file with its Go runtime: the executable, or a library. `load_bias` is runtime
    address minus linked address. Sites are linked addresses. `mappings` are the executable ones,
    those of that file first. `no_runtime_locks` says why `runtime_locks` are
    missing although the options ask for them. `binary` also knows the code of `plugins`, and
    `sites` have the parks and lock callers in it; `own_sites` are those of the program alone, None
    if these are the same.
    """

    target: Target
    path: str
    binary: GoBinary
    load_bias: int
    mappings: tuple[Mapping, ...]
    sites: ProbeSites
    callback: CgoCallback | None
    runtime_locks: RuntimeLockSites | None = None
    no_runtime_locks: str | None = None
    plugins: tuple[GoPlugin, ...] = ()
    own_sites: ProbeSites | None = None
    others: tuple[str, ...] = ()
    """Names of files of the process with other Go runtimes, if nothing chose between them."""

    @property
    def probed(self) -> tuple[ProbedCode, ...]:
        """The files to put probes for waits in: that of the program, then those of plugins."""
        own = ProbedCode(self.binary, self.load_bias, self.own_sites or self.sites)
        return own, *(plugin.code for plugin in self.plugins if plugin.code)

    def file_offset(self, pc: int) -> int:
        """Offset in bytes of the linked address `pc` in the file."""
        return self.binary.elf.vaddr_to_offset(pc)

    def g_offset(self) -> int:
        """Where a thread has the pointer to its running g, in bytes from the FS base.

        Raises GoTableError, TargetGone or UnreadableMemory.
        """

        def word(address: int) -> int:
            data = self.target.memory.read(address + self.load_bias, _WORD_BYTES)
            return int.from_bytes(data, "little")

        return g_offset(self.binary, word)

    @property
    def assumption(self) -> str | None:
        """What we assume about an unknown Go version, in words; None for a known one."""
        if self.binary.layout.is_of(self.binary.version):
            return None
        version, layout = self.binary.version, self.binary.layout
        return f"{printable(version.text)} is not known and was read as Go {layout.version}"


def _not_as_assumed(binary: GoBinary, error: Exception) -> UnsupportedGoVersion:
    return UnsupportedGoVersion(
        f"the program was built with {binary.version}, which is not known, and it can't be read as "
        f"Go {binary.layout.version} either: {error}"
    )


def open_program(
    target: Target,
    runtime: GoRuntime | None = None,
    *,
    allow_unknown_go: bool = False,
    runtime_locks: bool = False,
) -> GoProgram:
    """Read the tables of a runtime's file, for any process that runs it; None: the executable's.

    Raises NotGoProgram, UnsupportedGo, UnsupportedTarget or CorruptBinary.
    """
    runtime = runtime or executable_of(target)
    with ExitStack() as held:
        try:
            with target.allowance:
                elf = held.enter_context(runtime.open_elf(target))
                binary = GoBinary.open(elf, allow_unknown_version=allow_unknown_go)
        except (SymbolizerError, struct.error) as error:
            raise for_user(target, error, runtime.path) from error
        held.pop_all()
        return GoProgram(binary, runtime_locks=runtime_locks)


def require_known(target: Target, program: GoProgram, path: str) -> None:
    """Raise UnsupportedGo if the program is of a version of Go that is not known."""
    try:
        layout_for(program.binary.version)
    except UnsupportedGoVersion as error:
        raise for_user(target, error, path) from error


def go_code(
    target: Target,
    program: GoProgram,
    runtime: GoRuntime | None = None,
    modules: tuple[PluginModule, ...] | None = None,
) -> GoCode:
    """The code of the target, with `program`, the file of its `runtime` (None: the executable).

    `modules` are its plugins, if known. All processes of a program share one allowance for
    reading its files. Raises TargetGone.
    """
    target.allowance = program.binary.elf.allowance
    runtime, binary = runtime or executable_of(target), program.binary
    load_bias = runtime.load_bias(target, binary.elf)
    if modules is None:
        modules = plugin_modules(target, binary, load_bias)
    plugins = open_plugins(target, binary, modules)
    joined = with_plugin_code(binary, load_bias, plugins)
    return GoCode(runtime.path, joined, load_bias, modules, plugins)


def go_target(
    target: Target, program: GoProgram, code: GoCode | None = None, others: tuple[str, ...] = ()
) -> GoTarget:
    """The target as a process of `program`, which it runs; `code` is what go_code() returned.

    For `others` see GoTarget.

    Raises TargetGone, UnsupportedGo or CorruptBinary.
    """
    code = code or go_code(target, program)
    places = _places(target, program, code.path)
    sites, plugins = with_plugins(places.sites, code.load_bias, code.plugins)
    refusal = places.no_runtime_locks
    return GoTarget(
        target,
        code.path,
        code.binary,
        code.load_bias,
        target.executable_mappings(code.path, code.binary.elf.build_id),
        sites,
        places.callback,
        places.runtime_locks,
        refusal
        and (
            f"the Go runtime's own locks are not recorded in process {target.pid} "
            f"({printable(target.name)}): {refusal}"
        ),
        plugins,
        places.sites,
        others,
    )


def _places(target: Target, program: GoProgram, path: str) -> ProbePlaces:
    """The places to probe. Raises UnsupportedGo or CorruptBinary."""
    binary = program.binary
    try:
        return program.places()
    except (SymbolizerError, struct.error) as error:
        if binary.is_obfuscated:
            raise for_user(target, ObfuscatedProgram(str(error)), path) from error
        if not binary.layout.is_of(binary.version):
            raise for_user(target, _not_as_assumed(binary, error), path) from error
        raise for_user(target, error, path) from error


def _runtime_locks(binary: GoBinary) -> tuple[RuntimeLockSites | None, str | None]:
    """The places to probe, or a text that says why there are none."""
    try:
        return runtime_lock_sites(binary), None
    except (UnsupportedGoVersion, GoTableError) as error:
        return None, printable(str(error).rstrip("."))


def for_user(target: Target, error: Exception, path: str = "") -> Exception:
    """Translate an error from reading a file of the target into one of ebpfprof.errors.

    `path` is the file, by default the executable. The result names the file and the process, and
    says what to do. Errors that neither the symbolizer nor struct raises come back unchanged.
    """
    why = str(error).rstrip(".")
    where = f"{printable(path or target.exe_name)} (process {target.pid}): {why}."
    match error:
        case PackedProgram():
            return NotGoProgram(
                f"{where} Unpack it (`upx -d`) and start it again; attach --profile cpu records it "
                "as it is, without the names of its functions.",
                f"process {target.pid} ({printable(target.name)}) is packed by UPX",
            )
        case NotGoError():
            children = children_instead(target.pid)
            return NotGoProgram(
                f"{where} {children or 'It has no child that you could record instead.'}"
            )
        case UnsupportedGoVersion():
            return UnsupportedGo(f"{where[:-1]}; {way_out(error)}.", printable(why))
        case UnsupportedElf():
            return UnsupportedTarget(where)
        case SymbolizerError() | struct.error():
            return CorruptBinary(f"{where} If the file is damaged, build it again.")
    return error


def way_out(error: UnsupportedGoVersion) -> str:
    """What to do about a version of Go that we don't know, in words."""
    any_version = "attach --profile cpu records a program of any version"
    if error.can_be_tried:
        return f"--allow-unknown-go reads it as the nearest known version; {any_version}"
    return f"{error.remedy}; {any_version}"


def children_instead(pid: int) -> str:
    """Children that the user may have meant instead of a shell or a supervisor, in a sentence.

    "" if it has none.
    """
    import psutil

    try:
        children = psutil.Process(pid).children(recursive=True)[:_MAX_CHILDREN]
        named = [f"{child.pid} ({printable(child.name())})" for child in children]
    except psutil.Error:
        named = []
    if not named:
        return ""
    return f"Perhaps you mean one of its children: {', '.join(named)}."
