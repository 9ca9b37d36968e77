"""BPF programs compiled by BCC and loaded into the kernel. The only module that imports bcc."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ebpfprof import calibration, perf, trials, uprobemulti
from ebpfprof.errors import AttachFailed, BccMissing, KernelUnsupported, PermissionDenied
from ebpfprof.keeper import Keeper, Uprobe
from ebpfprof.privileges import way_out
from ebpfprof.sources import bpf_folder, program_text

if TYPE_CHECKING:  # numpy takes as long to import as BCC to get going: only when maps are read
    import numpy as np
    import numpy.typing as npt

Fields = Mapping[str, "int | Sequence[int] | Fields"]

_BATCH_ROWS = 4096
_HEADERS = "BCC_KERNEL_SOURCE"
# What else would tell BCC and clang what to compile.
_LEADING_ELSEWHERE = re.compile(
    "BCC_.*|CPATH|(C|CPLUS|OBJC|OBJCPLUS)_INCLUDE_PATH|COMPILER_PATH|(CCC|LIBCLANG|RC_DEBUG)_.*"
)
_LLVM = re.compile(r"/libLLVM[-.](?:so\.)?([0-9]+(?:\.[0-9]+)*)")


class Program:
    """One C file of bpf/, compiled and loaded, with its maps and the probes that run it.

    Closing it (it is a context manager) removes every probe and frees every map.
    """

    def __init__(
        self,
        name: str,
        constants: Mapping[str, int | str],
        functions: Sequence[str],
        perf_functions: Sequence[str] = (),
        own_functions: Sequence[str] = (),
    ) -> None:
        """Compile bpf/`name` with `constants` as preprocessor macros; load functions of it.

        `functions` are for attach_uprobes, `perf_functions` for attach_sampler, `own_functions`
        for run.
        Raises BccMissing, KernelUnsupported or PermissionDenied.
        """
        perf.require_bpf()
        self._multi = uprobemulti.is_offered()
        self.hit_ns = calibration.hit_ns() if functions else None
        """What it costs to pass a probe (calibration); None if there are none or it is unknown."""
        # Before there is much in memory: it has a copy of all.
        self._keeper = Keeper(multi=self._multi) if functions else None
        try:
            self._compile(name, constants, functions, perf_functions, own_functions)
        except BaseException:  # nobody will close what was not made
            if self._keeper:
                self._keeper.close()
            raise

    def _compile(
        self,
        name: str,
        constants: Mapping[str, int | str],
        functions: Sequence[str],
        perf_functions: Sequence[str],
        own_functions: Sequence[str],
    ) -> None:
        self._bcc = _import_bcc()
        self._sampler_links: dict[int, int] = {}  # the event's fd -> the link's
        self._readers: list[RingReader] = []
        headers = set_kernel_headers()
        flags = [f"-D{key}={value}" for key, value in constants.items()]
        with _native_stderr() as said, _in_folder(headers):
            try:
                self._bpf = self._bcc.BPF(text=program_text(name).encode(), cflags=flags)
            except Exception as error:  # BCC raises nothing narrower
                # One without attach cookies may limit maps by RLIMIT_MEMLOCK, too (before 5.11).
                trials.link_with_cookie()
                raise KernelUnsupported(
                    f"BCC could not compile {name} or create its maps: {error}\n{said()}"
                ) from error
        bpf = self._bcc.BPF
        self._loaded = {function: self._load(function, bpf.KPROBE) for function in functions}
        for function in perf_functions:
            self._loaded[function] = self._load(function, bpf.PERF_EVENT)
        for function in own_functions:
            self._loaded[function] = self._load(function, bpf.RAW_TRACEPOINT)

    def attach_uprobes(
        self, exe_fd: int, pid: int, probes: Sequence[Uprobe], *, anchor_offset: int, group: int
    ) -> None:
        """Run loaded BPF functions whenever process `pid` passes offsets of the open file `exe_fd`.

        At `anchor_offset` (bytes) it never passes: see ebpfprof.keeper. The probes of a `group`
        can be removed apart. Raises AttachFailed and the like; none is in then.
        """
        assert self._keeper is not None
        self._keeper.attach(group, exe_fd, pid, probes, self._loaded, anchor_offset=anchor_offset)

    @property
    def failure(self) -> Exception | None:
        """Why uprobes were out too early, if they were: known once they are removed."""
        return self._keeper.failure if self._keeper else None

    def attach_sampler(self, function: str, perf_fd: int, cookie: int) -> None:
        """Run `function` (of the perf_functions) whenever the event `perf_fd` fires.

        The program owns `perf_fd` from now on, also if this fails. Raises KernelUnsupported,
        PermissionDenied or AttachFailed.
        """
        try:
            self._sampler_links[perf_fd] = perf.link_program(
                self._loaded[function], perf_fd, cookie
            )
        except BaseException:
            os.close(perf_fd)
            raise

    def detach_sampler(self, perf_fd: int) -> None:
        """Close an event that was given to attach_sampler; nothing happens if it is closed."""
        link_fd = self._sampler_links.pop(perf_fd, None)
        if link_fd is not None:
            os.close(link_fd)
            os.close(perf_fd)

    def detach(self) -> None:
        """Remove all probes and samplers; the maps stay readable."""
        for perf_fd in list(self._sampler_links):
            self.detach_sampler(perf_fd)
        if self._keeper:
            self._keeper.detach()

    def detach_uprobes(self, groups: Sequence[int], *, for_a_while: bool = False) -> None:
        """Remove the uprobes of these groups; those that have none are passed over.

        The anchors stay in if that is `for_a_while`.
        """
        if self._keeper:
            self._keeper.detach(groups, for_a_while=for_a_while)

    def run(self, function: str, *arguments: int) -> None:
        """Run a function of the own_functions once, here and now, with a struct of these u64.

        Raises KernelUnsupported.
        """
        perf.run_once(self._loaded[function], arguments)

    def set_element(self, array: str, index: int, fields: Fields) -> None:
        """Write one element of an array map whose values are structs, which may be nested.

        Fields that are left out are 0.
        """
        table = self._bpf[array.encode()]
        element = table.Leaf()
        _fill(element, fields)
        table[table.Key(index)] = element

    def read_array(self, array: str) -> list[int]:
        """All elements of an array map of integers."""
        return [int(value.value) for value in self._bpf[array.encode()].values()]

    def read_per_cpu(self, array: str) -> list[dict[str, int]]:
        """The elements of an array map of structs of integers, each summed up over processors."""
        table = self._bpf[array.encode()]
        names = [name for name, *_ in table.Leaf._type_._fields_]
        return [
            {name: sum(getattr(part, name) for part in parts) for name in names}
            for parts in table.values()
        ]

    def read_hash(self, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """All keys and values of a hash map, as hash_batches returns them a part at a time."""
        import numpy as np

        keys, values = zip(*self.hash_batches(name), strict=True)
        return np.concatenate(keys), np.concatenate(values)

    def hash_batches(self, name: str) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """All keys and values of a hash map, some thousands at a time: arrays of the C types.

        Structs are records.
        Rows that come or go meanwhile may be missing; every other row is there once.
        Raises KernelUnsupported where the kernel has no batched lookups (before Linux 5.6).
        """
        import numpy as np

        table = self._bpf[name.encode()]
        key_type, value_type = np.dtype(table.Key), np.dtype(table.Leaf)
        position = ctypes.create_string_buffer(max(8, key_type.itemsize))
        start = None
        rows = min(_BATCH_ROWS, table.max_entries)
        while True:
            batch_keys = np.zeros(rows, key_type)
            batch_values = np.zeros(rows, value_type)
            count = ctypes.c_uint32(rows)
            failed = self._bcc.lib.bpf_lookup_batch(
                table.map_fd,
                start,
                ctypes.cast(position, ctypes.POINTER(ctypes.c_uint32)),
                batch_keys.ctypes.data_as(ctypes.c_void_p),
                batch_values.ctypes.data_as(ctypes.c_void_p),
                ctypes.byref(count),
            )
            code = ctypes.get_errno() if failed else 0
            if code == errno.ENOSPC and rows < table.max_entries:
                rows = min(rows * 2, table.max_entries)  # one hash bucket holds more rows
                continue
            if code not in (0, errno.ENOENT):
                raise KernelUnsupported(
                    f"The map {name} can't be read: {os.strerror(code)}. Linux 5.6 is needed."
                )
            yield batch_keys[: count.value], batch_values[: count.value]
            if code == errno.ENOENT:
                return
            start = ctypes.cast(position, ctypes.POINTER(ctypes.c_uint32))

    def hash_types(self, name: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """The C types of a hash map's keys and values, as numpy's (structs as records)."""
        import numpy as np

        table = self._bpf[name.encode()]
        return np.dtype(table.Key), np.dtype(table.Leaf)

    def update_hash(self, name: str, keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> int:
        """Add or replace rows of a hash map; returns how many went in before the map was full.

        `keys` and `values` have one row each per row, and the types of hash_types. Raises
        KernelUnsupported where the kernel has no batched updates (before Linux 5.6).
        """
        import numpy as np

        if (keys.dtype, values.dtype) != self.hash_types(name) or len(keys) != len(values):
            raise ValueError(f"these are no rows of the map {name}: {keys.dtype}, {values.dtype}")
        keys, values = np.ascontiguousarray(keys), np.ascontiguousarray(values)
        count = ctypes.c_uint32(len(keys))
        failed = self._bcc.lib.bpf_update_batch(
            self._bpf[name.encode()].map_fd,
            keys.ctypes.data_as(ctypes.c_void_p),
            values.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(count),
        )
        code = ctypes.get_errno() if failed else 0
        if code not in (0, errno.E2BIG, errno.ENOSPC, errno.ENOMEM):
            raise KernelUnsupported(
                f"The map {name} can't be written: {os.strerror(code)}. Linux 5.6 is needed."
            )
        return count.value

    def delete_rows(self, name: str, keys: npt.NDArray[Any]) -> None:
        """Delete rows of a hash map; those that are not there are passed over."""
        map_fd = self._bpf[name.encode()].map_fd
        for index in range(len(keys)):
            self._bcc.lib.bpf_delete_elem(map_fd, keys[index : index + 1].ctypes.data)

    def ring_buffer(self, name: str) -> RingReader:
        """A reader of the ring buffer `name`; it works until the program is closed.

        Raises KernelUnsupported.
        """
        reader = RingReader(self._bcc, self._bpf[name.encode()].map_fd)
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        """Remove all probes and free the maps."""
        for perf_fd in list(self._sampler_links):
            self.detach_sampler(perf_fd)
        if self._keeper:
            self._keeper.close()
        for reader in self._readers:
            reader.close()
        self._bpf.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _load(self, function: str, program_type: int) -> int:
        is_probe = program_type == self._bcc.BPF.KPROBE
        attach_type = uprobemulti.ATTACH_TYPE if self._multi and is_probe else -1
        with _native_stderr() as said:
            try:
                loaded = self._bpf.load_func(
                    function.encode(), program_type, attach_type=attach_type
                )
                return int(loaded.fd)
            except Exception as error:  # BCC raises nothing narrower
                if ctypes.get_errno() == errno.EPERM:
                    raise PermissionDenied(
                        f"The kernel does not let this user load BPF programs. {way_out()}"
                    ) from error
                # One without attach cookies rejects every program that asks for one.
                trials.link_with_cookie()
                raise AttachFailed(
                    f"The kernel rejected the BPF program {function}: {error}\n{said()}"
                ) from error


def set_kernel_headers() -> str:
    """Tell BCC to take our headers in place of the kernel's, and no others; returns their folder.

    To be called before other threads are there: native code may read the environment meanwhile,
    such as of a library that is being imported, and setenv() moves it under its hands.
    """
    headers = str(bpf_folder() / "headers")
    for name in [each for each in os.environ if _LEADING_ELSEWHERE.fullmatch(each)]:
        if name != _HEADERS:
            del os.environ[name]
    if os.environ.get(_HEADERS) != headers:
        os.environ[_HEADERS] = headers
    return headers


class RingReader:
    """Reads the records of one ring buffer, in the order in which they were written."""

    def __init__(self, bcc: Any, map_fd: int) -> None:  # noqa: ANN401 - BCC has no types
        self._lib = bcc.lib
        self._records: list[bytes] = []
        self._wanted = 0
        self._callback = bcc.libbcc._RINGBUF_CB_TYPE(self._take)  # must live as long as the ring
        self._ring = self._lib.bpf_new_ringbuf(map_fd, self._callback, None)
        if not self._ring:
            raise KernelUnsupported(
                f"A ring buffer can't be read: {os.strerror(ctypes.get_errno())}. Linux 5.8 is "
                "needed."
            )

    def consume(self, max_records: int = 4096) -> list[bytes]:
        """All records that are there, but at most `max_records`; never waits."""
        self._wanted = max_records
        self._lib.bpf_consume_ringbuf(self._ring)
        records, self._records = self._records, []
        return records

    def close(self) -> None:
        """Give the memory back; nothing can be read any more."""
        ring, self._ring = self._ring, None
        self._lib.bpf_free_ringbuf(ring)

    def _take(self, _context: int | None, data: int, size_bytes: int) -> int:
        self._records.append(ctypes.string_at(data, size_bytes))
        # Below 0 it stops; the record counts as read. A busy ring would never be empty.
        return 0 if len(self._records) < self._wanted else -1


def _fill(struct: ctypes.Structure, fields: Fields) -> None:
    for name, value in fields.items():
        if isinstance(value, int):
            setattr(struct, name, value)
        elif isinstance(value, Mapping):
            _fill(getattr(struct, name), value)
        else:
            getattr(struct, name)[: len(value)] = value


@dataclass(frozen=True, slots=True)
class BccVersions:
    """The version of BCC and the LLVM that compiles for it, "" where it doesn't tell."""

    bcc: str
    llvm: str


def bcc_versions() -> BccVersions:
    """Which BCC there is. Raises BccMissing."""
    bcc = _import_bcc()
    # Distributions link it to LLVM's shared library, whose file has its version in its name.
    maps = Path("/proc/self/maps").read_text(errors="replace")
    llvm = _LLVM.search(maps)
    return BccVersions(str(getattr(bcc, "__version__", "")), llvm[1] if llvm else "")


def _import_bcc() -> Any:  # noqa: ANN401 - BCC has no types
    try:
        import bcc
    # OSError: it is there, but not the library that it wraps. SyntaxError: PyPI's, or none at all.
    except (ImportError, OSError, SyntaxError) as error:
        raise BccMissing(
            f"The Python bindings of BCC are missing for {sys.executable} ({error}). "
            "Install them with `apt-get install python3-bpfcc` (Debian, Ubuntu) or "
            "`dnf install python3-bcc` (Fedora), and run ebpfprof with the distribution's own "
            "python3. The package called bcc on PyPI is something else."
        ) from error
    if not hasattr(bcc, "BPF"):
        raise BccMissing(
            f"The module bcc at {bcc.__file__} is not the BPF Compiler Collection. Uninstall that "
            "package and install `python3-bpfcc` (Debian, Ubuntu) or `python3-bcc` (Fedora)."
        )
    return bcc


@contextlib.contextmanager
def _in_folder(path: str) -> Iterator[None]:
    """Change the working directory: BCC would take headers from it before all others."""
    # It may have been deleted: then it has a descriptor still, but no path.
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir(path)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextlib.contextmanager
def _native_stderr() -> Iterator[Any]:
    """Catch what native code writes to file descriptor 2; yields a function that returns it."""
    if sys.stderr is not None:  # it is if it was closed when we were started
        sys.stderr.flush()
    saved = os.dup(2)
    with os.fdopen(os.memfd_create("stderr"), "w+b") as caught:

        def said() -> str:
            caught.seek(0)
            return caught.read().decode(errors="replace").strip()

        os.dup2(caught.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(saved, 2)
            os.close(saved)
