"""Compiles C with BCC, in a process of its own; the only module that imports bcc.

LLVM takes about 100 MB, which that process frees when it ends, before anything is recorded. The
result is data: the maps to create, and the instructions of each function. Programs of a release
(ebpfprof.kernel.packaged_programs) or in the cache (ebpfprof.kernel.program_cache) are not
compiled.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ebpfprof.errors import INSTALL_BCC, AttachFailed, BccMissing, KernelUnsupported, to_type
from ebpfprof.kernel import features, packaged_programs, program_cache
from ebpfprof.kernel.program_source import Compiled, ProgramSource, with_maps
from ebpfprof.kernel.sources import bpf_folder
from ebpfprof.system import child_process
from ebpfprof.system.channel import ChannelError, Frame, MessageChannel

NAME: Final = "ebpfprof-bcc"
HEADERS: Final = bpf_folder() / "headers"
_HEADERS = "BCC_KERNEL_SOURCE"
# Other variables that lead BCC and clang to files.
_LEADING_ELSEWHERE = re.compile(
    "BCC_.*|CPATH|(C|CPLUS|OBJC|OBJCPLUS)_INCLUDE_PATH|COMPILER_PATH|(CCC|LIBCLANG|RC_DEBUG)_.*"
)
_HIDES_SYSTEM = re.compile(r"^include-system-site-packages *= *false", re.MULTILINE | re.IGNORECASE)
_PACKAGES = Path("/usr/lib")  # as */*-packages: where distributions put the modules of Python
_LLVM = re.compile(r"/libLLVM[-.](?:so\.)?([0-9]+(?:\.[0-9]+)*)")


class Compilation:
    """A C file that is being compiled while this process does other things. To be closed."""

    def __init__(self, source: ProgramSource) -> None:
        """Begin to compile it, unless this release has it compiled."""
        self._name = source.name
        self._pid = 0
        self._channel: MessageChannel | None = None
        self._key = ""
        self._compiled = packaged_programs.find(source)
        if self._compiled:
            return
        self._key = _cache_key(source)
        self._compiled = _from_cache(self._key)
        if self._compiled:
            return
        self._channel, theirs = MessageChannel.pair(NAME)
        work = partial(_compile_for_parent, source)
        with theirs:
            self._pid = child_process.start(NAME, work, [theirs.fileno()], ends_with_us=True)

    def result(self) -> Compiled:
        """Wait for it. Raises BccMissing, KernelUnsupported or AttachFailed."""
        if self._compiled:
            return self._compiled
        assert self._channel
        try:
            made = self._channel.result().message
        except ChannelError as error:
            raise AttachFailed(
                f"The process that compiles {self._name} ({NAME}) ended before it was done "
                f"(status {self._reap()}): it was killed, or there was no memory for it."
            ) from error
        self._compiled = Compiled.of_json(made)
        if self._key:
            program_cache.keep(self._key, made)
        return self._compiled

    def close(self) -> None:
        """End the compiler, if it still runs. May be called twice."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._reap()
        if self._channel:
            self._channel.close()

    def _reap(self) -> int:
        pid, self._pid = self._pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else 0


def _from_cache(key: str) -> Compiled | None:
    made = program_cache.find(key) if key else None
    # What is no program is compiled and replaced.
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        return Compiled.of_json(made) if made else None
    return None


def _cache_key(source: ProgramSource) -> str:
    """A key for all that the compiler reads; "" if there is no BCC.

    BCC is not imported for that, which would take long.
    """
    bcc = importlib.util.find_spec("bcc")
    if bcc is None or not bcc.origin:
        return ""
    files = [Path(bcc.origin).parent / "version.py", *sorted(HEADERS.rglob("*.h"))]
    try:
        texts = [text for path in files for text in (path.name, path.read_text())]
    except (OSError, ValueError):  # a BCC of unknown version: compiled each time
        return ""
    kernel = os.uname()
    return program_cache.key_of(
        [kernel.release, kernel.version, bcc.origin, *texts, *source.parts()]
    )


def _compile_for_parent(source: ProgramSource, fd: int) -> None:
    """What the process does: compile, and send the result."""
    channel = MessageChannel.to_parent(fd)
    try:
        made = compile_with_bcc(source)
    except Exception as error:  # any error: our parent raises it
        channel.send_failure(error)
    else:
        channel.send_result(Frame(made))


def compile_with_bcc(source: ProgramSource) -> dict[str, Any]:
    """Compile; returns a Compiled as JSON can hold it (Compiled.of_json).

    It changes this process: environment, working directory, standard error. Raises BccMissing or
    KernelUnsupported.
    """
    bcc = _import_bcc()
    headers = _set_kernel_headers()
    os.chdir(headers)  # BCC would take headers from the working directory before all others
    with _native_stderr() as said:
        try:
            bpf = bcc.BPF(text=source.text().encode(), cflags=source.flags())
        except Exception as error:  # BCC raises nothing narrower
            # A kernel without attach cookies may also limit maps by RLIMIT_MEMLOCK (before 5.11).
            features.require_cookies()
            raise KernelUnsupported(
                f"BCC could not compile {source.name} or create its maps: {error}\n{said()}"
            ) from error
    shapes, numbers = _maps(bcc.lib, ctypes.c_void_p(bpf.module))
    return {
        "maps": shapes,
        "functions": {
            function: with_maps(bpf.dump_func(function.encode()), numbers.__getitem__).hex()
            for function in source.all_functions()
        },
        "license": bcc.lib.bpf_module_license(bpf.module).decode(),
    }


def _maps(
    lib: Any,  # noqa: ANN401 - BCC has no types
    module: ctypes.c_void_p,
) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """The maps that BCC made, and their indices by file descriptor (bcc, src/cc/bcc_common.h)."""
    lib.bpf_table_name.restype = ctypes.c_char_p
    lib.bpf_table_name.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    shapes, numbers = [], {}
    for number in range(lib.bpf_num_tables(module)):
        index = ctypes.c_size_t(number)
        name = lib.bpf_table_name(module, number)
        numbers[lib.bpf_table_fd_id(module, index)] = number
        shapes.append(
            {
                "name": name.decode(),
                "kind": lib.bpf_table_type_id(module, number),
                "key_bytes": lib.bpf_table_key_size_id(module, index),
                "value_bytes": lib.bpf_table_leaf_size_id(module, index),
                "max_entries": lib.bpf_table_max_entries_id(module, number),
                "key": json.loads(lib.bpf_table_key_desc(module, name)),
                "value": json.loads(lib.bpf_table_leaf_desc(module, name)),
            }
        )
    return shapes, numbers


def _set_kernel_headers() -> str:
    """Make BCC take our headers, not the kernel's, and no others; returns their folder."""
    headers = str(HEADERS)
    for name in [name for name in os.environ if _LEADING_ELSEWHERE.fullmatch(name)]:
        del os.environ[name]
    os.environ[_HEADERS] = headers
    return headers


@dataclass(frozen=True, slots=True)
class BccVersions:
    """The version of BCC and of its LLVM; "" if it is not known."""

    bcc: str
    llvm: str


def bcc_versions() -> BccVersions:
    """The versions of the BCC of this machine. Raises BccMissing."""
    bcc = _import_bcc()
    # Distributions link it to LLVM's shared library, whose file has its version in its name.
    maps = Path("/proc/self/maps").read_text(errors="replace")
    llvm = _LLVM.search(maps)
    return BccVersions(str(getattr(bcc, "__version__", "")), llvm[1] if llvm else "")


def _import_bcc() -> Any:  # noqa: ANN401 - BCC has no types
    """The module bcc. Raises BccMissing."""
    try:
        import bcc
    # OSError: it is there, but not the library that it wraps. SyntaxError: PyPI's, or none at all.
    except (ImportError, OSError, SyntaxError) as error:
        raise BccMissing(
            f"The Python bindings of BCC are missing for {sys.executable} ({error}). "
            "The package called bcc on PyPI is something else. " + how_to_get_bcc(Path(sys.prefix))
        ) from error
    if not hasattr(bcc, "BPF"):
        raise BccMissing(
            f"The module bcc at {bcc.__file__} is not the BPF Compiler Collection. Uninstall that "
            "package and install python3-bpfcc (Debian, Ubuntu) or python3-bcc (Fedora)."
        )
    return bcc


def how_to_get_bcc(prefix: Path, packages: Path = _PACKAGES) -> str:
    """What to do for this Python, whose sys.prefix it is; `packages` has those of the system.

    A virtual environment may hide the system's packages: its pyvenv.cfg says so (PEP 405).
    """
    try:
        settings = (prefix / "pyvenv.cfg").read_text(errors="replace")
    except OSError:  # no virtual environment
        settings = ""
    if not _HIDES_SYSTEM.search(settings):
        return (
            "Run ebpfprof with the distribution's own python3. To install them on Debian and "
            f"Ubuntu, or on Fedora:{to_type(*INSTALL_BCC)}"
        )
    has_them = any(packages.glob("*/*-packages/bcc"))
    install = () if has_them else INSTALL_BCC
    return (
        "This virtual environment hides the system's packages. "
        + ("" if has_them else "Install the bindings (Debian and Ubuntu, or Fedora). ")
        + "Make it again, or with pipx, with the distribution's own python3:"
        + to_type(
            *install,
            "python3 -m venv --system-site-packages FOLDER",
            "pipx install --force --system-site-packages ebpfprof",
        )
    )


@contextlib.contextmanager
def _native_stderr() -> Iterator[Any]:
    """Catch what native code writes to file descriptor 2; yields a function that returns it."""
    with os.fdopen(os.memfd_create("stderr"), "w+b") as caught:

        def said() -> str:
            caught.seek(0)
            return caught.read().decode(errors="replace").strip()

        os.dup2(caught.fileno(), 2)
        yield said
