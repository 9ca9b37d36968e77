"""Which goroutines can use a channel, as far as their stacks show.

A goroutine can send to a channel or receive from it if a frame of the program has a pointer to the
channel, or to an object that has one near its beginning. Others may find it over other objects:
that no goroutine has it shows no more than that none is about to use it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.distinct import distinct
from ebpfprof.goruntime.waits.stack_words import StackWords
from ebpfprof.profile.operations import is_in_library

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.goroutines.frames import StackFrames
    from ebpfprof.process.memory import Memory

_MAX_STACKS: Final = 1 << 14  # that we read: about 20 us each
_MAX_FRAMES: Final = 64
_OBJECT_WORDS: Final = 16
_MAX_OBJECTS: Final = 1 << 16
_HEAP_BYTES: Final = 1 << 40  # on each side of a channel: the heap grows from a random address on


def channel_users(
    memory: Memory,
    frames: StackFrames,
    goroutines: Sequence[Goroutine],
    channels: Collection[int],
) -> dict[int, tuple[int, ...]]:
    """The ids of the goroutines that can use each of these channels, by its address.

    A channel is left out if not all stacks were searched, or there are none. Goroutines that run
    have no stack in memory: they are never among them. Raises TargetGone or GoTableError.
    """
    if not (channels and goroutines) or len(goroutines) > _MAX_STACKS:
        return {}
    near = next(iter(channels))
    first, end = max(0, near - _HEAP_BYTES), near + _HEAP_BYTES
    pointers: list[npt.NDArray[np.uint64]] = []
    owners: list[npt.NDArray[np.uint64]] = []
    for goroutine in goroutines:
        words = _words_of_program(memory, frames, goroutine)
        words = words[(words >= first) & (words < end)]
        pointers.append(words)
        owners.append(np.full(len(words), goroutine.goid, np.uint64))
    words, goids = np.concatenate(pointers), np.concatenate(owners)
    objects = distinct(words)
    if len(objects) > _MAX_OBJECTS:
        return {}
    inner = memory.read_records(objects, np.dtype(("<u8", (_OBJECT_WORDS,))))
    users = {}
    for channel in channels:
        has_it = objects[(inner == channel).any(axis=1)]
        is_user = (words == channel) | np.isin(words, has_it)
        users[channel] = tuple(sorted(set(goids[is_user].tolist())))
    return users


def _words_of_program(
    memory: Memory, frames: StackFrames, goroutine: Goroutine
) -> npt.NDArray[np.uint64]:
    """The words in frames of functions outside of Go's own library, each once."""
    numbers = {
        number
        for number, frame in frames.logical(goroutine.pcs)
        if number < _MAX_FRAMES and not is_in_library(frame.function)
    }
    if not numbers or not goroutine.words.bp:
        return np.zeros(0, np.uint64)
    stack = StackWords(memory, goroutine, lambda _: None)
    words = np.array([word for number in numbers for word in stack.of_frame(number)], np.uint64)
    return distinct(words)
