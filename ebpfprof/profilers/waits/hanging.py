"""Goroutines that hang in a lock or a send, in sentences: no profile of ended waits has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted, duration, printable
from ebpfprof.errors import to_type
from ebpfprof.profile.hanging import NEVER_IDLE
from ebpfprof.profile.operations import caller, operation

if TYPE_CHECKING:
    from ebpfprof.goruntime.looks import GoroutineLooks
    from ebpfprof.goruntime.state_sums import GoroutineState
    from ebpfprof.profilers.waits.stacks import StackTranslator

_MOST: Final = 3


def sentences(
    hanging: Mapping[GoroutineState, tuple[int, int]],
    looks: GoroutineLooks,
    translator: StackTranslator,
    pid: int,
) -> list[str]:
    """A sentence for each place where goroutines hang, the most of them first; then what to type.

    `hanging` is that of LookedDelays. Raises GoTableError if the binary's tables contradict
    themselves.
    """
    found = defaultdict[tuple[str, str, str, int], tuple[int, int]](lambda: (0, 0))
    for state, (count, longest_ns) in hanging.items():
        at = looks.sampler.park_at(state.pcs)
        stack = None if at is None else translator.stack("block", state.pcs[at:])
        if stack is None:
            continue
        frames = [frame for location in stack.locations for frame in location.frames]
        name, line = operation(frames), caller(frames)
        if name in NEVER_IDLE:
            key = name, line.function, line.file, line.line
            before, before_ns = found[key]
            found[key] = before + count, max(before_ns, longest_ns)
    ordered = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    sentences = [
        printable(
            f"{counted(count, 'goroutine')} of process {pid} did not move for {duration(ns, 2)} or "
            f"longer: {name} in {function} ({file.rpartition('/')[2]}:{line})."
        )
        for (name, function, file, line), (count, ns) in ordered[:_MOST]
    ]
    if sentences:
        sentences[-1] += to_type(f"ebpfprof dump --pid {pid}")
    return sentences
