"""What is read at once of a process that may soon be killed for lack of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebpfprof.console.text import quantity
from ebpfprof.errors import EbpfprofError
from ebpfprof.observing.heap_growth import HeapGrowthReader
from ebpfprof.profilers.registry import kind_named
from ebpfprof.server import goroutines, heap

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenProcesses
    from ebpfprof.profile.model import Profile


@dataclass(frozen=True, slots=True)
class LastWords:
    """Profiles by kind, and sentences: the largest types of a program without a heap profile."""

    profiles: Mapping[str, Profile]
    lines: tuple[str, ...] = ()


def last_words(processes: OpenProcesses, pid: int) -> LastWords:
    """The heap and the goroutines of a process, read from its memory without a probe.

    Raises any of ebpfprof.errors.
    """
    with processes.open(pid) as process:
        profiles = {"goroutine": goroutines.profile(process, kind_named("goroutine"))}
        try:
            return LastWords({"heap": heap.profile(process, kind_named("heap")), **profiles})
        except EbpfprofError as error:
            types = HeapGrowthReader(process.go()).types()
            lines = [f"{quantity(one.used, 'bytes')} are of type {one.name}." for one in types]
            return LastWords(profiles, tuple(lines) or (str(error),))
