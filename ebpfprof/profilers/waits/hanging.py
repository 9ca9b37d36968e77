"""Goroutines that hang in a lock or a send, in sentences: no profile of ended waits has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import ages, counted, printable
from ebpfprof.errors import to_type
from ebpfprof.profile.hanging import NEVER_IDLE
from ebpfprof.profile.operations import caller, operation

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
    from ebpfprof.goruntime.samples.state_sums import GoroutineState
    from ebpfprof.profilers.waits.wait_stacks import StackTranslator

_MOST: Final = 3


def sentences(
    hanging: Mapping[GoroutineState, tuple[int, int, int]],
    looks: SharedSampler,
    translator: StackTranslator,
    pid: int,
) -> list[str]:
    """A sentence for each place where goroutines hang, the most of them first; then what to type.

    `hanging` is that of LookedDelays. Raises GoTableError if the binary's tables contradict
    themselves.
    """
    places: dict[tuple[str, str, str, int], tuple[int, int, int]] = {}
    for state, (count, oldest_ns, newest_ns) in hanging.items():
        at = looks.sampler.park_at(state.pcs)
        stack = None if at is None else translator.stack("block", state.pcs[at:])
        if stack is None:
            continue
        frames = [frame for location in stack.locations for frame in location.frames]
        name, line = operation(frames), caller(frames)
        if name in NEVER_IDLE:
            key = name, line.function, line.file, line.line
            before, most_ns, least_ns = places.get(key, (0, oldest_ns, newest_ns))
            places[key] = before + count, max(most_ns, oldest_ns), min(least_ns, newest_ns)
    ordered = sorted(places.items(), key=lambda item: (-item[1][0], item[0]))
    sentences = [
        printable(
            f"{counted(count, 'goroutine')} of process {pid} did not move for "
            f"{ages(newest_ns, oldest_ns, 2)} or longer: {name} in {function} "
            f"({file.rpartition('/')[2]}:{line})."
        )
        for (name, function, file, line), (count, oldest_ns, newest_ns) in ordered[:_MOST]
    ]
    if sentences:
        sentences[-1] += to_type(f"ebpfprof dump --pid {pid}")
    return sentences
