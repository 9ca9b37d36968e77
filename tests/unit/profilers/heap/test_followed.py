"""Following sampled objects, with the answers of a made-up heap."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ebpfprof.goruntime.heap.survivors import ALIVE, GONE, UNKNOWN, Survivors
from ebpfprof.profilers.heap.followed import Followed
from ebpfprof.profilers.heap.gate_program import chance
from ebpfprof.profilers.heap.gate_tables import _BIRTH, AllocatingStack

Addresses = npt.NDArray[np.uint64]
Answers = npt.NDArray[np.uint8]
Births = npt.NDArray[Any]  # records
LOST, ALIKE = 3, 8
STACKS = {key: AllocatingStack((key,), 64) for key in range(10)}


class Heap:
    """Its objects, by address: what a collection says of each; and the latest collection."""

    def __init__(self) -> None:
        self.answers: dict[int, int] = {}
        self.now = 4
        self.asked = list[list[int]]()
        self.end_meanwhile = 0

    def generation(self) -> int:
        return self.now

    def ask(self, addresses: Addresses, _sizes: Addresses, _generation: int) -> Answers:
        self.asked.append(addresses.tolist())
        self.now += 2 * self.end_meanwhile
        return np.array([self.answers.get(int(address), GONE) for address in addresses], np.uint8)


def births(*objects: int, at: int = 4, stack: int = 7, size: int = 64, drawn: int = 0) -> Births:
    rows = np.zeros(len(objects), _BIRTH)
    rows["object"], rows["stack"], rows["sweepgen"] = objects, stack, at
    rows["size_bytes"], rows["drawn"] = size, drawn
    return rows


def following() -> tuple[Heap, Followed]:
    heap = Heap()
    return heap, Followed(cast("Survivors", heap))


def stack_of(key: int) -> AllocatingStack | None:
    """Keys that the heap names; two of them look the same."""
    return {LOST: None, ALIKE: STACKS[7]}.get(key, STACKS[key])


def count(followed: Followed) -> float:
    return sum(followed.found(1, stack_of).weighted.values())


def test_an_object_is_judged_by_the_next_collection() -> None:
    heap, followed = following()
    followed.add(births(8, 16))
    followed.check()
    assert heap.asked == []  # no collection since
    heap.now = 6
    heap.answers = {8: ALIVE}
    followed.add(births(24, at=6))  # allocated after that collection
    followed.check()
    assert heap.asked == [[8, 16]]
    assert count(followed) == 1  # the new one counts from the next collection on
    assert len(followed) == 2
    found = followed.found(1, stack_of)
    assert (found.collections, found.missed, found.unsure) == (1, 0, 0)


def test_a_span_that_is_not_swept_is_asked_again() -> None:
    heap, followed = following()
    followed.add(births(8))
    heap.now, heap.answers = 6, {8: UNKNOWN}
    followed.check()
    assert len(followed) == 1
    heap.answers = {}
    followed.check()
    assert len(followed) == 0


def test_answers_are_dropped_if_two_collections_end_meanwhile() -> None:
    heap, followed = following()
    followed.add(births(8))
    heap.now, heap.end_meanwhile = 6, 1
    followed.check()
    assert len(followed) == 0
    followed.add(births(8, at=heap.now))
    heap.now, heap.end_meanwhile = heap.now + 2, 2
    followed.check()
    assert len(followed) == 1


def test_a_missed_collection_is_counted_and_its_survivors_are_unsure() -> None:
    heap, followed = following()
    followed.add(births(8, 16))
    heap.now, heap.answers = 10, {8: ALIVE}
    followed.check()
    found = followed.found(1, stack_of)
    assert (found.collections, found.missed, found.unsure) == (3, 2, 1)


def test_generations_wrap_around() -> None:
    heap, followed = following()
    heap.now = (1 << 32) - 2
    followed.check()
    followed.add(births(8, at=(1 << 32) - 2))
    heap.now, heap.answers = 0, {8: ALIVE}
    followed.check()
    assert heap.asked == [[8]]
    assert followed.found(1, stack_of).missed == ((1 << 32) - 2 - 4) // 2 - 1  # before


def test_a_new_object_at_an_address_replaces_the_old_one() -> None:
    _, followed = following()
    followed.add(births(8, stack=1))
    followed.add(births(8, stack=2))
    assert followed.found(1, stack_of).weighted == {STACKS[2]: 1}


def test_fewer_are_followed_by_what_was_drawn_for_each() -> None:
    _, followed = following()
    limit = int(2**32 * chance(64, 512 << 10))
    followed.add(births(8, drawn=limit - 1))
    followed.add(births(16, drawn=limit + 1))
    followed.add(births(24, drawn=1 << 31, size=1 << 20))  # large ones always
    followed.thin(512 << 10)
    assert len(followed) == 2


def test_objects_of_a_window_stand_for_its_pause_too() -> None:
    _, followed = following()
    followed.add(births(8))
    followed.note_window(1.0)
    followed.add(births(16, 24))
    followed.note_window(5.0)
    followed.add(births(32))
    found = followed.found(1, stack_of)
    assert found.weighted == {STACKS[7]: 1 + 10 + 1}
    assert found.squares == {STACKS[7]: 100}


def test_stacks_that_look_the_same_are_one() -> None:
    """Their objects of one window come and go together: the square is of both."""
    _, followed = following()
    followed.note_window(1.0)
    followed.add(births(8, 16))
    followed.add(births(24, stack=ALIKE))
    followed.add(births(32, stack=LOST))
    followed.note_window(5.0)
    found = followed.found(1, stack_of)
    assert found.weighted == {STACKS[7]: 15}
    assert found.squares == {STACKS[7]: 225}


def test_collections_before_the_recording_do_not_count() -> None:
    heap, followed = following()
    heap.now = 100  # it was opened long before
    followed.begin()
    followed.add(births(8, at=100))
    followed.check()
    found = followed.found(1, stack_of)
    assert (found.collections, found.missed) == (0, 0)
    assert found.weighted == {STACKS[7]: 1}
    heap.now, heap.answers = 102, {8: ALIVE}
    followed.begin()  # again, while an object is followed: that collection counts
    followed.check()
    assert followed.found(1, stack_of).collections == 1
