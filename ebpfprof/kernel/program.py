"""BPF programs: compiled, loaded into the kernel, with their maps and the probes that run them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ebpfprof.errors import AttachFailed, PermissionDenied
from ebpfprof.kernel import features, perf_events, probe_cost, uprobe_links
from ebpfprof.kernel.compiler import Compilation, with_maps
from ebpfprof.kernel.maps import BpfMap, Fields, RingReader
from ebpfprof.kernel.uprobe_helper import Uprobe, UprobeHelper
from ebpfprof.privileges.checks import way_out

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class BpfProgram:
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
        """Begin to compile bpf/`name` with `constants` as preprocessor macros; load() ends it.

        `functions` are for attach_uprobes, `perf_functions` for attach_sampler, `own_functions`
        for run. Raises KernelUnsupported or PermissionDenied.
        """
        perf_events.require_bpf()
        self._kinds: dict[str, perf_events.ProgramKind] = {
            **dict.fromkeys(functions, "kprobe"),
            **dict.fromkeys(perf_functions, "perf_event"),
            **dict.fromkeys(own_functions, "raw_tracepoint"),
        }
        self._maps: dict[str, BpfMap] = {}
        self._loaded: dict[str, int] = {}
        self._sampler_links: dict[int, int] = {}  # the event's fd -> the link's
        self._readers: list[RingReader] = []
        self._helper: UprobeHelper | None = None
        # First: it takes longest, and holds nothing of the rest.
        self._compilation = Compilation(name, constants, list(self._kinds))
        try:
            self._uses_links = uprobe_links.is_offered()
            self.hit_ns = probe_cost.hit_ns() if functions else None
            """What it costs to pass a probe (calibration); None: there is none, or not known."""
            # Before there is much in memory: it has a copy of all.
            self._helper = UprobeHelper(uses_links=self._uses_links) if functions else None
        except BaseException:  # nobody will close what was not made
            self._compilation.close()
            raise

    def load(self, rows: Mapping[str, int] | None = None, grows: Set[str] = frozenset()) -> None:
        """Make the maps, some with other numbers of `rows` than in the C, and load the functions.

        Hash maps of `grows` take memory as rows come, where the kernel can do that. Raises
        BccMissing, KernelUnsupported, PermissionDenied or AttachFailed.
        """
        compiled = self._compilation.result()
        self._compilation.close()
        for shape in compiled.maps:
            name = shape.name
            self._maps[name] = BpfMap(shape, (rows or {}).get(name), grows=name in grows)
        fds = [each.fd for each in self._maps.values()]
        for function, code in compiled.functions.items():
            instructions = with_maps(code, fds.__getitem__)
            self._loaded[function] = self._load(function, instructions, compiled.license)

    def attach_uprobes(
        self,
        exe_fd: int,
        pid: int,
        probes: Sequence[Uprobe],
        *,
        anchor: tuple[int, int],
        group: int,
    ) -> None:
        """Run loaded BPF functions whenever process `pid` passes offsets of the open file `exe_fd`.

        The `anchor` is an offset and a runtime address that it never passes: see
        ebpfprof.kernel.held_probes. The probes of a `group` can be detached apart. Raises
        AttachFailed and the like; none is in then.
        """
        assert self._helper is not None
        self._helper.attach(group, exe_fd, pid, probes, self._loaded, anchor=anchor)

    @property
    def failure(self) -> Exception | None:
        """Why uprobes were out early, or could not be removed, once they are detached."""
        return self._helper.failure if self._helper else None

    def attach_sampler(self, function: str, perf_fd: int, cookie: int) -> None:
        """Run `function` (of the perf_functions) whenever the event `perf_fd` fires.

        The program owns `perf_fd` from now on, also if this fails. Raises KernelUnsupported,
        PermissionDenied or AttachFailed.
        """
        try:
            self._sampler_links[perf_fd] = perf_events.link_program(
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
        if self._helper:
            self._helper.detach()

    def detach_uprobes(self, groups: Sequence[int], *, for_a_while: bool = False) -> None:
        """Remove the uprobes of these groups; those that have none are passed over.

        The anchors stay in if that is `for_a_while`.
        """
        if self._helper:
            self._helper.detach(groups, for_a_while=for_a_while)

    def run(self, function: str, *arguments: int) -> None:
        """Run a function of the own_functions once, here and now, with a struct of these u64.

        Raises KernelUnsupported.
        """
        perf_events.run_once(self._loaded[function], arguments)

    def set_element(self, array: str, index: int, fields: Fields) -> None:
        """Write one element of an array map whose values are structs, which may be nested.

        Fields that are left out are 0.
        """
        self._maps[array].set_struct(index, fields)

    def read_array(self, array: str) -> list[int]:
        """All elements of an array map of integers."""
        return self._maps[array].numbers()

    def read_per_cpu(self, array: str, index: int) -> dict[str, int]:
        """An element of an array map of structs of integers, summed up over processors."""
        return self._maps[array].sum_at(index)

    def read_hash(self, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """All keys and values of a hash map, as arrays of the C types (structs as records).

        See hash_batches, which returns them a part at a time.
        """
        import numpy as np

        keys, values = zip(*self.hash_batches(name), strict=True)
        return np.concatenate(keys), np.concatenate(values)

    def hash_batches(self, name: str) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """All keys and values of a hash map, some thousands at a time.

        Rows that come or go meanwhile may be missing; every other row is there once.
        Raises KernelUnsupported where the kernel has no batched lookups (before Linux 5.6).
        """
        return self._maps[name].batches()

    def hash_types(self, name: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """The C types of a hash map's keys and values, as numpy's (structs as records)."""
        return self._maps[name].types

    def update_hash(self, name: str, keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> int:
        """Add or replace rows of a hash map; returns how many went in before the map was full.

        `keys` and `values` have one row each per row, and the types of hash_types. Raises
        KernelUnsupported where the kernel has no batched updates (before Linux 5.6).
        """
        return self._maps[name].update(keys, values)

    def delete_rows(self, name: str, keys: npt.NDArray[Any]) -> None:
        """Delete rows of a hash map; those that are not there are passed over."""
        self._maps[name].delete(keys)

    def ring_buffer(self, name: str) -> RingReader:
        """A reader of the ring buffer `name`; it works until the program is closed.

        Raises KernelUnsupported.
        """
        reader = RingReader(self._maps[name])
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        """Remove all probes and free the maps."""
        for perf_fd in list(self._sampler_links):
            self.detach_sampler(perf_fd)
        if self._helper:
            self._helper.close()
        self._compilation.close()
        for reader in self._readers:
            reader.close()
        self._readers.clear()
        for fd in self._loaded.values():
            os.close(fd)
        self._loaded.clear()
        for each in self._maps.values():
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _load(self, function: str, instructions: bytes, license: str) -> int:
        kind = self._kinds[function]
        try:
            return perf_events.load_program(
                kind,
                instructions,
                attach_type=uprobe_links.ATTACH_TYPE
                if self._uses_links and kind == "kprobe"
                else 0,
                name=function,
                license=license,
            )
        except OSError as error:
            if error.errno == errno.EPERM:
                raise PermissionDenied(
                    f"The kernel does not let this user load BPF programs. {way_out()}"
                ) from error
            # One without attach cookies rejects every program that asks for one.
            features.require_cookies()
            raise AttachFailed(
                f"The kernel rejected the BPF program {function}: {error.strerror}"
            ) from error
