"""Numbers in text files of the kernel: those of /proc and of control groups.

What makes no sense is missing: nothing here raises. No number is negative or above 2^64.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_NUMBER: Final = rb"(\d{1,20})"
_KEYED: Final = re.compile(rb"^([\w.()]{1,64}):?[ \t]+" + _NUMBER + rb"(?: kB)?$", re.MULTILINE)
_ALONE: Final = re.compile(_NUMBER + rb"\n?")
_QUOTA: Final = re.compile(rb"(max|\d{1,20}) " + _NUMBER + rb"\n?")
_PRESSURE: Final = re.compile(rb"^(some|full) avg10=[^\n]{1,100} total=" + _NUMBER + rb"$", re.M)
_SCHEDSTAT: Final = re.compile(rb"%b %b %b\n?" % (_NUMBER, _NUMBER, _NUMBER))
_PROCESSORS: Final = re.compile(rb"cpu +" + rb" ".join([_NUMBER] * 8) + rb"[ \n]")
_MOST: Final = (1 << 64) - 1
_MAJOR_FAULTS: Final = 9  # in /proc/PID/stat, from the third field, the state, on
_START: Final = 19  # there, too


class ProcessorTicks(NamedTuple):
    """What all processors together did since the start, in ticks (proc_stat(5))."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int


def number(text: bytes) -> int | None:
    """The number that is the whole file; None for any other, such as "max" or -1."""
    match = _ALONE.fullmatch(text)
    return _bounded(match[1]) if match else None


def keyed(text: bytes) -> dict[str, int]:
    """The numbers behind names: of cpu.stat, memory.events, /proc/PID/io, /proc/PID/status."""
    pairs = ((key.decode(), _bounded(value)) for key, value in _KEYED.findall(text))
    return {key: value for key, value in pairs if value is not None}


def quota(text: bytes) -> tuple[int | None, int] | None:
    """The quota and the period in a cpu.max, in microseconds; the quota is None for "max"."""
    match = _QUOTA.fullmatch(text)
    period_us = _bounded(match[2]) if match else None
    if match is None or not period_us:
        return None
    return (None if match[1] == b"max" else _bounded(match[1])), period_us


def pressure(text: bytes) -> dict[str, int]:
    """The total stalls in a file of PSI, in microseconds: "some" and "full"."""
    pairs = ((key.decode(), _bounded(value)) for key, value in _PRESSURE.findall(text))
    return {key: value for key, value in pairs if value is not None}


def run_delay_ns(text: bytes) -> int | None:
    """For how long a thread could run but had no processor, by its /proc/PID/task/TID/schedstat.

    Linux fs/proc/base.c, proc_pid_schedstat.
    """
    match = _SCHEDSTAT.fullmatch(text)
    return _bounded(match[2]) if match else None


def major_faults(text: bytes) -> int | None:
    """The page faults that waited for a disk, in a /proc/PID/stat (proc_pid_stat(5))."""
    return _of_stat(text, _MAJOR_FAULTS)


def start_ticks(text: bytes) -> int | None:
    """When a process started, in ticks of CLOCK_BOOTTIME, by its /proc/PID/stat."""
    return _of_stat(text, _START)


def processor_ticks(text: bytes) -> ProcessorTicks | None:
    """The first line of /proc/stat (Linux fs/proc/stat.c, show_stat)."""
    match = _PROCESSORS.match(text)
    numbers = map(_bounded, match.groups()) if match else ()
    ticks = [value for value in numbers if value is not None]
    return ProcessorTicks(*ticks) if len(ticks) == len(ProcessorTicks._fields) else None


def _of_stat(text: bytes, field: int) -> int | None:
    words = text.rpartition(b")")[2].split()
    return number(words[field]) if len(words) > field else None


def _bounded(digits: bytes) -> int | None:
    value = int(digits)
    return value if value <= _MOST else None
