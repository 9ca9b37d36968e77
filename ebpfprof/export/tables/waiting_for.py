"""What goroutines of a dump wait for, as lines for people and as JSON for programs.

Lines may have text of the target in them: they are not fit for a terminal before printable().
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ebpfprof.console.text import counted, duration, listed
from ebpfprof.profile import file_words
from ebpfprof.profile.waiting_for import (
    NOTHING,
    FileWait,
    LockState,
    OpenFile,
    SystemCall,
    ThreadWait,
    WaitsFor,
)

_MAX_SHOWN: Final = 3
_MAX_HOLDERS: Final = 8
_FD_BITS: Final = 0xFFFFFFFF
_ADDRESSES: Final = 1 << 20


def lines(waits: Sequence[WaitsFor]) -> list[str]:
    """What the goroutines of a group wait for, a sentence a line; [] if nothing is known."""
    files = [wait.file_wait for wait in waits if wait.file_wait]
    threads = [waits_for.thread for waits_for in waits if waits_for.thread]
    return [
        *_locks(waits),
        *_one_of(len(waits), len(files), _files(files)),
        *_one_of(len(waits), len(threads), _threads(threads)),
        *_sleeps([wait.wakes_in_ns for wait in waits if wait.wakes_in_ns is not None]),
    ]


def as_json(waits: WaitsFor) -> dict[str, Any] | None:
    """The same for one goroutine: addresses in hexadecimal, times in seconds; None if unknown."""
    if waits == NOTHING:
        return None
    fields: dict[str, Any] = {}
    if lock := waits.lock:
        fields["lock"] = {
            "address": f"{lock.address:#x}",
            "type": lock.type,
            "name": lock.name,
            "locked": lock.is_locked,
            "waiters": lock.waiters,
            "readers": lock.readers,
            "writer_waits": lock.writer_waits,
            "counter": lock.counter,
            "may_be_held_by": list(waits.may_hold),
            "surely_held_by": list(waits.surely_hold),
            "behind_writer": waits.behind or None,
            "lost_wake": waits.lost_wake,
        }
    if wait := waits.file_wait:
        fields["file"] = {"waits_to": "write" if wait.is_write else "read", **_file_json(wait.file)}
    if thread := waits.thread:
        fields["thread"] = {"id": thread.thread, "runs": thread.runs}
        fields["system_call"] = _call_json(thread.call) if thread.call else None
    if waits.wakes_in_ns is not None:
        fields["wakes_in_s"] = waits.wakes_in_ns / 1e9
    return fields


def _call_json(call: SystemCall) -> dict[str, Any]:
    return {
        "number": call.number,
        "name": call.name,
        "arguments": [{"name": name, "value": value} for name, value in call.arguments],
        "file": _file_json(call.file) if call.file else None,
    }


def _file_json(file: OpenFile) -> dict[str, Any]:
    return {
        "fd": file.fd,
        "kind": file.kind,
        "local": file.local or None,
        "peer": file.peer or None,
        "path": file.path or None,
        "listens": file.is_listener,
    }


def _one_of(number: int, known: int, lines: list[str]) -> list[str]:
    """If only one of several goroutines is known, the sentence names it."""
    return [f"one of them {line}" for line in lines] if known == 1 < number else lines


def _locks(waits: Sequence[WaitsFor]) -> list[str]:
    alike = defaultdict[LockState, list[WaitsFor]](list)
    for wait in waits:
        if wait.lock:
            alike[wait.lock].append(wait)
    ordered = sorted(alike.items(), key=lambda item: (-len(item[1]), item[0].address))
    locks = []
    for lock, some in ordered[:_MAX_SHOWN]:
        number = f"{counted(len(some), 'goroutine')}: " if len(some) < len(waits) else ""
        locks.append(f"{number}for {lock_name(lock)}{_lock_state(lock)}")
        if lock.is_locked or lock.readers:
            locks += _holders(some[0])
    if len(ordered) > _MAX_SHOWN:
        locks.append(f"for {counted(len(ordered) - _MAX_SHOWN, 'other lock')}")
    return locks


def lock_name(lock: LockState) -> str:
    """A lock in a sentence: "main.Cache.mu (sync.Mutex at 0xc000012340)"."""
    place = f"{lock.type} at {lock.address:#x}"
    return f"{lock.name} ({place})" if lock.name else f"the {place}"


def _lock_state(lock: LockState) -> str:
    if lock.type == "sync.WaitGroup":
        return f", counter {lock.counter}"
    if lock.type == "sync.Cond":
        return ""
    if lock.writer_waits:
        return f", which {counted(lock.readers, 'reader')} hold{_s(lock.readers)}; a writer waits"
    if lock.readers:
        return f", which {counted(lock.readers, 'reader')} hold{_s(lock.readers)}"
    return "" if lock.is_locked else ", which is free now"


def _s(number: int) -> str:
    return "s" if number == 1 else ""


def _holders(waits: WaitsFor) -> list[str]:
    holders = []
    if waits.may_hold:
        shown = [str(goid) for goid in waits.may_hold[:_MAX_HOLDERS]]
        more = len(waits.may_hold) - len(shown)
        shown += [f"{more} more"] if more else []
        noun = "goroutine" if len(shown) == 1 else "goroutines"
        holders.append(f"it may be held by {noun} {listed(shown)}")
    if waits.behind:
        holders.append(f"goroutine {waits.behind} wants to write first")
    return holders


def _files(waits: Sequence[FileWait]) -> list[str]:
    if len(waits) == 1:
        (only,) = waits
        return [file_words.wait(only, is_one=True)]
    alike = defaultdict[tuple[str, str], list[OpenFile]](list)
    for wait in waits:
        alike[file_words.verb(wait, is_one=False), file_words.kind(wait.file)].append(wait.file)
    parts = []
    ordered = sorted(alike.items(), key=lambda item: -len(item[1]))
    for (verb, what), files in ordered[:_MAX_SHOWN]:
        parts.append(f"{len(files)} {verb} {what}{_ends(files)}")
    if len(ordered) > _MAX_SHOWN:
        rest = sum(len(files) for _, files in ordered[_MAX_SHOWN:])
        parts.append(f"{rest} wait for others")
    return parts


def _ends(files: Sequence[OpenFile]) -> str:
    """The ends of connections: the servers' addresses, which are fewer, and the clients' hosts."""
    here = Counter(file.local for file in files if file.local)
    there = Counter(file.peer for file in files if file.peer)
    if there and len(there) < len(here):
        return f": {_commonest(there)}"
    hosts = Counter(file.peer.rpartition(":")[0] for file in files if file.peer)
    on = f" on {_commonest(here)}" if here else ""
    return f"{on}; peers: {_commonest(hosts)}" if hosts else on


def _commonest(names: Counter[str]) -> str:
    if len(names) == 1:
        return next(iter(names))
    shown = [f"{name} ({count})" for name, count in names.most_common(_MAX_SHOWN)]
    more = [f"{counted(len(names) - _MAX_SHOWN, 'other')}"] if len(names) > _MAX_SHOWN else []
    return ", ".join(shown + more)


def _threads(threads: Sequence[ThreadWait]) -> list[str]:
    """The calls of threads; nothing of one that runs: that is what its goroutine's state says."""
    alike = Counter(_call(thread) for thread in threads)
    if len(threads) == 1:
        (only,) = threads
        return [f"{text}, thread {only.thread}" for text in alike if text]
    return [f"{count} {text}" for text, count in alike.most_common(_MAX_SHOWN) if text]


def _call(thread: ThreadWait) -> str:
    call = thread.call
    if call is None:
        return "" if thread.runs else "waits in the kernel, outside of system calls"
    shown = ", ".join(
        f"fd {_signed(value & _FD_BITS)}" if name == "fd" else f"{name} {_number(value)}"
        for name, value in call.arguments
    )
    where = f": {_opened(call.file)}" if call.file else ""
    return f"in {call.name}({shown}){where}"


def _opened(file: OpenFile) -> str:
    if file.is_listener:
        return f"{file.kind} listener {file.local or file.path}"
    if file.local:
        return f"{file.kind} {file.local}{' with ' + file.peer if file.peer else ''}"
    return file_words.kind(file)


def _signed(number: int) -> int:
    """A number of 32 bits: openat's descriptor of the current folder is -100."""
    return number - (1 << 32) if number >> 31 else number


def _number(value: int) -> str:
    """Small ones as people count; large ones are addresses, or negative."""
    if value < _ADDRESSES:
        return str(value)
    return str(value - (1 << 64)) if value > (1 << 64) - _ADDRESSES else f"{value:#x}"


def _sleeps(ends_ns: Iterable[int]) -> list[str]:
    ordered = sorted(ends_ns)
    if not ordered:
        return []
    first, last = ordered[0], ordered[-1]
    if last <= 0:
        return [f"should have woken {duration(-first)} ago"]
    if len(ordered) == 1:
        return [f"wakes in {duration(last)}"]
    soonest = f"in {duration(first)}" if first > 0 else "now"
    return [f"the first wakes {soonest}, the last in {duration(last)}"]
