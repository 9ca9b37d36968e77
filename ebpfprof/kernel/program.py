"""BPF programs: compiled, loaded into the kernel, with their maps and the probes that run them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Protocol

from ebpfprof.errors import AttachFailed, KernelUnsupported, PermissionDenied
from ebpfprof.kernel import (
    dispatcher,
    features,
    perf_events,
    probe_cost,
    syscalls,
    uprobe_links,
    uprobes,
)
from ebpfprof.kernel.compiler import Compilation
from ebpfprof.kernel.dispatcher import Dispatcher
from ebpfprof.kernel.maps import BpfMap
from ebpfprof.kernel.program_source import ProgramSource, ready, sized_maps
from ebpfprof.kernel.uprobe_helper import Uprobe, UprobeHelper
from ebpfprof.privileges.checks import way_out
from ebpfprof.system.closing import Closing

_LOSSES = "losses"  # a number for each target and kind of loss: too many to read one by one


class _Make(Protocol):
    """Makes the instructions of a function: program_source.ready() with all but the last."""

    def __call__(self, *, may_goto: bool) -> bytes: ...


class BpfProgram(Closing):
    """One C file of bpf/, compiled and loaded, with its maps and the probes that run it.

    Closing it (it is a context manager) removes every probe and frees every map.
    """

    dispatches = True
    """Whether one program runs at all probes and calls the others: kernel.dispatcher."""

    def __init__(
        self,
        source: ProgramSource,
        numbers: Mapping[str, int] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Begin to compile it, if need be; load() ends that.

        `numbers` has the values of `source.numbers`, `sizes` those of program_source.SIZES. Raises
        KernelUnsupported or PermissionDenied.
        """
        features.require_bpf()
        self._source = source
        self._numbers = [(numbers or {})[name] for name in source.numbers]
        self._sizes = sizes or {}
        self._kinds: dict[str, syscalls.ProgramKind] = {
            **dict.fromkeys(source.functions, "kprobe"),
            **dict.fromkeys(source.perf_functions, "perf_event"),
            **dict.fromkeys(source.own_functions, "raw_tracepoint"),
        }
        self.maps: Mapping[str, BpfMap] = {}
        """By their names in the C; all of them once load() has made them."""
        self._loaded: dict[str, int] = {}
        self._code: dict[str, tuple[_Make, str]] = {}  # of functions for uprobes, and its license
        self._dispatcher: Dispatcher | None = None
        self._for_events: dict[str, int] = {}  # loaded again, where links can't be used
        self._sampler_links: dict[int, int] = {}  # the event's fd -> the link's
        self._tracepoints: list[int] = []
        self._helper: UprobeHelper | None = None
        # First: it takes longest, and holds nothing of the rest.
        self._compilation = Compilation(source)
        try:
            self._uses_links = uprobe_links.is_offered()
            self.hit_ns = probe_cost.hit_ns() if source.functions else None
            """What it costs to pass a probe, in ns; None without probes, or if it is not known."""
            # Before there is much in memory: it has a copy of all.
            self._helper = UprobeHelper(uses_links=self._uses_links) if source.functions else None
        except BaseException:  # close() is not called for what was not made
            self._compilation.close()
            raise

    def load(
        self,
        rows: Mapping[str, int] | None = None,
        grows: Set[str] = frozenset(),
        mapped: Set[str] = frozenset(),
    ) -> None:
        """Make the maps, some with other numbers of `rows` than in the C, and load the functions.

        Hash maps of `grows` take memory as rows come, if the kernel can do that; arrays of `mapped`
        and those of losses are read without system calls. Raises
        BccMissing, KernelUnsupported, PermissionDenied or AttachFailed.
        """
        compiled = self._compilation.result()
        self._compilation.close()
        maps: dict[str, BpfMap] = {}
        self.maps = maps
        sized = sized_maps(self._source.name) if self._sizes else {}
        for shape in compiled.maps:
            name = shape.name
            multiple = self._sizes[sized[name]] if name in sized else 1
            maps[name] = BpfMap(
                shape,
                (rows or {}).get(name, shape.max_entries * multiple),
                grows=name in grows,
                is_mapped=name in mapped or name == _LOSSES,
            )
        fds = [bpf_map.fd for bpf_map in maps.values()]
        for function, code in compiled.functions.items():
            make = partial(ready, code, fds.__getitem__, self._numbers)
            self._loaded[function] = self._load(
                function, make, compiled.license, links=self._uses_links
            )
            if self._kinds[function] == "kprobe":
                self._code[function] = make, compiled.license
        if self.dispatches and self._uses_links and len(self._code) > 1:
            called = [self._loaded[function] for function in self._code]
            try:
                self._dispatcher = Dispatcher(called, compiled.license)
            except OSError as error:
                raise AttachFailed(
                    f"The kernel rejected the BPF program {dispatcher.NAME}: {error.strerror}"
                ) from error

    def attach_uprobes(
        self,
        file_fd: int,
        pid: int,
        probes: Sequence[Uprobe],
        *,
        anchor: tuple[int, int],
        group: int,
    ) -> None:
        """Run loaded BPF functions when process `pid` passes offsets of the open file `file_fd`.

        The `anchor` is an offset and a runtime address that it never passes: see
        ebpfprof.kernel.held_probes. The probes of a `group` can be detached apart. Raises
        AttachFailed and the like, and leaves no probe then.
        """
        assert self._helper is not None
        uses_links = self._uses_links and uprobe_links.can_reach(pid)
        programs = self._loaded if uses_links == self._uses_links else self._programs_for_events()
        if self._dispatcher and uses_links:
            numbers = {function: number for number, function in enumerate(self._code)}
            programs = {dispatcher.NAME: self._dispatcher.fd}
            probes = [
                replace(
                    probe,
                    function=dispatcher.NAME,
                    cookie=dispatcher.cookie(numbers[probe.function], probe.cookie),
                )
                for probe in probes
            ]
        self._helper.attach(
            group, file_fd, pid, probes, programs, anchor=anchor, uses_links=uses_links
        )

    @property
    def is_loaded(self) -> bool:
        """Whether load() has made the maps."""
        return bool(self.maps)

    @property
    def failure(self) -> Exception | None:
        """Why uprobes were removed early, or could not be removed, once they are detached."""
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
        except BaseException:  # Ctrl-C, too: nobody else closes it
            os.close(perf_fd)
            raise

    def detach_sampler(self, perf_fd: int) -> None:
        """Close an event that was given to attach_sampler; nothing happens if it is closed."""
        link_fd = self._sampler_links.pop(perf_fd, None)
        if link_fd is not None:
            os.close(link_fd)
            os.close(perf_fd)

    def attach_tracepoint(self, function: str, name: str) -> None:
        """Run a function of the own_functions whenever the kernel passes the tracepoint `name`.

        Its context has the arguments of the tracepoint as u64. Raises AttachFailed.
        """
        try:
            fd = syscalls.open_raw_tracepoint(self._loaded[function], name)
        except OSError as error:
            raise AttachFailed(
                f"The kernel runs no BPF program at its tracepoint {name}: {error.strerror}."
            ) from error
        self._tracepoints.append(fd)

    def detach_tracepoints(self) -> None:
        """Let no function run at tracepoints any more."""
        while self._tracepoints:
            os.close(self._tracepoints.pop())

    def detach(self) -> None:
        """Remove all probes and samplers; the maps stay readable."""
        self.detach_tracepoints()
        self._detach_samplers()
        if self._helper:
            self._helper.detach()

    def detach_uprobes(self, groups: Sequence[int], *, for_a_while: bool = False) -> None:
        """Remove the uprobes of these groups; groups without uprobes are passed over.

        The anchors stay in if that is `for_a_while`.
        """
        if self._helper:
            self._helper.detach(groups, for_a_while=for_a_while)

    def run(self, function: str, *arguments: int) -> None:
        """Run a function of the own_functions once, here and now, with a struct of these u64.

        Raises KernelUnsupported.
        """
        try:
            syscalls.run_program(self._loaded[function], arguments)
        except OSError as error:
            raise KernelUnsupported(
                f"The kernel does not run a BPF program by itself: {error.strerror}."
            ) from error

    def close(self) -> None:
        """Remove all probes and free the maps."""
        self.detach_tracepoints()
        self._detach_samplers()
        if self._helper:
            self._helper.close()
        self._compilation.close()
        if self._dispatcher:
            self._dispatcher.close()
        for fds in (self._loaded, self._for_events):
            for fd in fds.values():
                os.close(fd)
            fds.clear()
        for bpf_map in self.maps.values():
            bpf_map.close()

    def _detach_samplers(self) -> None:
        for perf_fd in list(self._sampler_links):
            self.detach_sampler(perf_fd)

    def _programs_for_events(self) -> Mapping[str, int]:
        for function, (make, license) in self._code.items():
            if function not in self._for_events:
                self._for_events[function] = self._load(function, make, license, links=False)
        return self._for_events

    def _load(self, function: str, make: _Make, license: str, *, links: bool) -> int:
        kind = self._kinds[function]
        is_uprobe = kind == "kprobe"
        load = partial(
            syscalls.load_program,
            kind,
            attach_type=uprobes.attach_type(uses_links=links and is_uprobe),
            name=function,
            license=license,
        )
        try:
            if features.have_may_goto():
                # If the error has another reason, loading without may_goto fails, too.
                with contextlib.suppress(OSError):
                    return load(make(may_goto=True))
            return load(make(may_goto=False))
        except OSError as error:
            if error.errno == errno.EPERM:
                raise PermissionDenied(
                    f"The kernel does not let this user load BPF programs. {way_out()}"
                ) from error
            # A kernel without attach cookies rejects every program that asks for one.
            features.require_cookies()
            raise AttachFailed(
                f"The kernel rejected the BPF program {function}: {error.strerror}"
            ) from error
