"""In which system calls the threads are that run goroutines, or that goroutines wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.fields import IDENTITY, SEQUENCE_SHIFT, g_record, waits_in
from ebpfprof.goruntime.records import record
from ebpfprof.process.system_calls import arguments_of, name_of
from ebpfprof.profile.waiting_for import SystemCall, ThreadWait

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.process.descriptors import Descriptors
    from ebpfprof.process.memory import Memory
    from ebpfprof.process.threads import Threads, ThreadState
    from ebpfprof.profile.waiting_for import OpenFile
    from symbolizer.go.runtime_layout import RuntimeLayout

_STATES: Final = ("syscall", "running")
_MAX_THREADS: Final = 1 << 14
_M: Final = (("thread", "procid", "<u8"), ("goroutine", "curg", "<u8"))
_SEQUENCE_SHIFT: Final = np.uint64(SEQUENCE_SHIFT)
_FD: Final = "fd"
_FD_BITS: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Found:
    goroutine: Goroutine
    thread: int
    state: ThreadState


def thread_calls(
    memory: Memory,
    layout: RuntimeLayout,
    threads: Threads,
    descriptors: Descriptors,
    goroutines: Sequence[Goroutine],
) -> dict[int, ThreadWait]:
    """What the thread of each goroutine does, by the address of the runtime.g.

    Only of goroutines that run or are in a system call, and had that thread before and after it
    was read (runtime/runtime2.go, g.m, m.curg, m.procid; Go 1.19 to 1.27). Raises TargetGone.
    """
    chosen = [
        goroutine
        for goroutine in goroutines
        if goroutine.state in _STATES and goroutine.words.thread
    ]
    chosen = chosen[:_MAX_THREADS]
    if not chosen:
        return {}
    machines = np.array([goroutine.words.thread for goroutine in chosen], np.uint64)
    kind = record(layout, "m", _M)
    before = memory.read_records(machines, kind)
    numbers = threads.numbers()
    candidates = []
    for goroutine, words in zip(chosen, before, strict=True):
        thread = numbers.get(int(words["thread"]), 0)
        state = threads.state(thread) if thread else None
        candidates.append(_Found(goroutine, thread, state) if state else None)
    is_same = memory.read_records(machines, kind) == before
    is_same &= before["goroutine"] == np.array(
        [goroutine.address for goroutine in chosen], np.uint64
    )
    is_same &= _still_there(memory, layout, chosen)
    settled = [
        candidate
        for candidate, good in zip(candidates, is_same.tolist(), strict=True)
        if candidate and good
    ]
    fds = [_descriptor(call.state) for call in settled]
    files = descriptors.files({fd for fd in fds if fd is not None})
    return {
        candidate.goroutine.address: ThreadWait(
            candidate.thread,
            candidate.state.runs,
            _call(candidate.state, None if fd is None else files.get(fd)),
        )
        for candidate, fd in zip(settled, fds, strict=True)
    }


def _descriptor(state: ThreadState) -> int | None:
    """The file descriptor that is the first argument of a system call, if it takes one."""
    if not state.arguments or arguments_of(state.number)[:1] != [_FD]:
        return None
    return state.arguments[0] & _FD_BITS


def _call(state: ThreadState, file: OpenFile | None) -> SystemCall | None:
    if state.runs or state.number < 0:
        return None
    names = arguments_of(state.number)
    arguments = tuple(zip(names, state.arguments, strict=False))
    return SystemCall(state.number, name_of(state.number), arguments, file)


def _still_there(
    memory: Memory, layout: RuntimeLayout, chosen: Sequence[Goroutine]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    addresses = np.array([goroutine.address for goroutine in chosen], np.uint64)
    records = memory.read_records(addresses, g_record(layout, *IDENTITY, "thread"))
    waits = np.array([goroutine.wait for goroutine in chosen], np.uint64)
    threads = np.array([goroutine.words.thread for goroutine in chosen], np.uint64)
    same: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        waits_in(records) >> _SEQUENCE_SHIFT == waits >> _SEQUENCE_SHIFT
    ) & (records["thread"] == threads)
    return same
