"""Finds the online processors, and keeps a sampler on each as processors come and go."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from ebpfprof.errors import AttachFailed, KernelUnsupported
from ebpfprof.kernel import perf_events
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.system.closing import Closing

ONLINE = Path("/sys/devices/system/cpu/online")

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


def online_cpus() -> tuple[int, ...]:
    """The numbers of the online processors, ascending.

    Raises KernelUnsupported if /sys does not list them.
    """
    try:
        text = ONLINE.read_text()
        ranges = [_numbers(part) for part in text.strip().split(",")]
    except (OSError, ValueError) as error:
        raise KernelUnsupported(
            f"The kernel does not list its processors ({ONLINE}: {error}). Mount /sys."
        ) from error
    return tuple(cpu for numbers in ranges for cpu in numbers)


def _numbers(part: str) -> range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"no list of processors: {part!r}")
    return range(int(match[1]), int(match[2] or match[1]) + 1)


class Samplers(Closing):
    """Runs one BPF function of a program on each online processor, `hz` times per second.

    A context manager: closing it, or the program, stops that.
    """

    def __init__(self, program: BpfProgram, function: str, hz: int) -> None:
        """Open samplers on all online processors, without enabling them.

        All are hardware counters; or all are timers, if one processor has no such counter. Raises
        KernelUnsupported, PermissionDenied or AttachFailed.
        """
        self.unsampled: dict[int, str] = {}
        self._program = program
        self._function = function
        self._hz = hz
        self._enabled = False
        self._fds: dict[int, int] = {}  # of each processor
        self._counts: dict[int, int] = {}  # of the samplers at the last check
        self._turn = 0
        try:
            self._hardware = self._add_all()
        except BaseException:  # Ctrl-C too: no perf event may stay
            self.close()
            raise

    @property
    def kind(self) -> Literal["cpu-clock", "ref-cycles"]:
        """The event that triggers samples; see perf_events.open_cpu_sampler."""
        return "ref-cycles" if self._hardware else "cpu-clock"

    @property
    def cpus(self) -> tuple[int, ...]:
        """The processors that have a sampler, ascending."""
        return tuple(sorted(self._fds))

    def enable(self) -> None:
        """Start sampling."""
        self._enabled = True
        for fd in self._fds.values():
            perf_events.enable(fd)

    def disable(self) -> None:
        """Stop sampling; `enable` may start it again."""
        self._enabled = False
        for fd in self._fds.values():
            perf_events.disable(fd)

    def refresh(self) -> None:
        """Open and close samplers as processors come and go; call it some times a second.

        Does not raise: if it can't sample a processor, it adds the reason to `unsampled`.
        """
        try:
            online = set(online_cpus())
        except KernelUnsupported:  # it could be read before
            return
        for cpu in self._fds.keys() - online:
            self._drop(cpu)
        self._check_next()
        for cpu in sorted(online - self._fds.keys()):
            try:
                self._add_any(cpu)
            except AttachFailed as error:
                self.unsampled[cpu] = str(error)
            else:
                self.unsampled.pop(cpu, None)

    def close(self) -> None:
        """Remove all samplers."""
        for cpu in self.cpus:
            self._drop(cpu)

    def _add_all(self) -> bool:
        """Open samplers on all processors; return whether they are hardware counters."""
        online = online_cpus()
        try:
            for cpu in online:
                self._add(cpu, hardware=True)
        except perf_events.NoHardwareCounter:
            self.close()
            for cpu in online:
                self._add(cpu, hardware=False)
            return False
        return True

    def _add_any(self, cpu: int) -> None:
        """Open a sampler on one more processor: by a timer if it has no counter."""
        try:
            self._add(cpu, hardware=self._hardware)
        except perf_events.NoHardwareCounter:
            self._add(cpu, hardware=False)

    def _add(self, cpu: int, *, hardware: bool) -> None:
        try:
            fd = perf_events.open_cpu_sampler(cpu, self._hz, hardware=hardware)
        except perf_events.CpuOffline:
            return  # it went offline after we read the list
        self._program.attach_sampler(self._function, fd, 0)
        self._fds[cpu] = fd
        if self._enabled:
            perf_events.enable(fd)

    def _drop(self, cpu: int) -> None:
        self._program.detach_sampler(self._fds.pop(cpu))
        self._counts.pop(cpu, None)

    def _check_next(self) -> None:
        """Close one sampler if it is dead. Each call checks the next one: a check interrupts it.

        An event dies with its processor, even if that comes back before we read the list again.
        And the kernel may disable a counter for good (perf_events.count).
        """
        if not self._enabled or not self._fds:
            return
        self._turn += 1
        cpu = self.cpus[self._turn % len(self._fds)]
        count = perf_events.count(self._fds[cpu])
        if count is None or count == self._counts.get(cpu):
            self._drop(cpu)
        else:
            self._counts[cpu] = count
