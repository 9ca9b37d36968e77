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
_STATE: Final = re.compile(rb"^State:\t([A-Za-z])", re.MULTILINE)
_MOST: Final = (1 << 64) - 1
# Fields of /proc/PID/stat from the third, the state, on (proc_pid_stat(5)).
_STAT_FIELDS: Final = {"minor_faults": 7, "major_faults": 9, "user": 11, "system": 12}


class RunTimes(NamedTuple):
    """The time for which a thread ran, and for which it could have run but had no processor."""

    ran_ns: int
    delayed_ns: int


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


def run_times(text: bytes) -> RunTimes | None:
    """The times in a /proc/PID/task/TID/schedstat (Linux fs/proc/base.c, proc_pid_schedstat)."""
    match = _SCHEDSTAT.fullmatch(text)
    ran_ns, delayed_ns = (_bounded(match[1]), _bounded(match[2])) if match else (None, None)
    return None if ran_ns is None or delayed_ns is None else RunTimes(ran_ns, delayed_ns)


def thread_state(status: bytes) -> str:
    """The letter of the state in a /proc/PID/task/TID/status, such as "D"; "" if unknown."""
    match = _STATE.search(status)
    return match[1].decode() if match else ""


def stat_fields(text: bytes) -> dict[str, int]:
    """Some numbers of a /proc/PID/stat: page faults, and CPU time in ticks of the clock."""
    words = text.rpartition(b")")[2].split()
    values = ((name, words[at]) for name, at in _STAT_FIELDS.items() if at < len(words))
    pairs = ((name, number(word)) for name, word in values)
    return {name: value for name, value in pairs if value is not None}


def _bounded(digits: bytes) -> int | None:
    value = int(digits)
    return value if value <= _MOST else None
