"""The rule against torn reads: which copies of stacks belong to their runtime.g."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ebpfprof.goruntime.goroutines.fields import g_record
from ebpfprof.goruntime.goroutines.stack_copies import AT_ONCE, Copies, StackCopier, StackPlaces
from ebpfprof.goruntime.goroutines.stack_starts import StackStarts
from symbolizer.go.runtime_layout import layout_for
from symbolizer.go.version import GoVersion
from tests.fuzz.ways.made_up import made_up_memory
from tests.images.pages import SavedBytes

LAYOUT = layout_for(GoVersion.parse("go1.27"))
KIND = g_record(LAYOUT)
G, STACK, STACK_BYTES = 0xC000_0000_00, 0xC000_1000_00, 0x1000
RUNNING, WAITING = 2, 4
NO_BINARY: Any = None  # nothing here is in a system call


class Program(SavedBytes):
    """Goroutines, each with a stack; `before_read` is called with what is read."""

    def __init__(self, count: int) -> None:
        self.g = np.zeros(count, KIND)
        self.g["goid"] = np.arange(count) + 1
        self.g["status"] = WAITING
        self.g["hi"] = [self.stack(number) + STACK_BYTES for number in range(count)]
        self.g["sp"] = self.g["hi"] - np.uint64(64)
        self.unreadable: set[int] = set()
        self.before_read: Callable[[str, int], None] = lambda what, number: None

    @staticmethod
    def stack(number: int) -> int:
        return STACK + number * STACK_BYTES

    def up_to(self, address: int, size: int) -> bytes:
        if address >= STACK:
            number = (address - STACK) // STACK_BYTES
            self.before_read("stack", number)
            return b"" if number in self.unreadable else address.to_bytes(8, "little") * (size // 8)
        number = (address - G) // KIND.itemsize
        if size == KIND.itemsize:
            self.before_read("g", number)
        return bytes(self.g[number].tobytes()[:size])

    def places(self) -> StackPlaces:
        count = len(self.g)
        addresses = np.uint64(G) + np.arange(count, dtype=np.uint64) * np.uint64(KIND.itemsize)
        none = np.zeros(count, np.uint64)
        return StackPlaces(addresses, self.g["sp"].copy(), self.g["hi"].copy(), none, none.copy())

    def copier(self, **options: Any) -> StackCopier:  # noqa: ANN401 - those of StackCopier
        memory = made_up_memory([])
        memory._pages._saved = self  # type: ignore[attr-defined]  # it stands for saved bytes
        return StackCopier(memory, LAYOUT, StackStarts(NO_BINARY, 0), **options)


def read(program: Program) -> tuple[StackCopier, Copies]:
    copier = program.copier()
    copier.plan(program.places())
    return copier, copier.read()


def test_copies_of_goroutines_at_rest_are_exact() -> None:
    program = Program(3)
    copier, copies = read(program)
    assert copies.is_exact.tolist() == [True] * 3
    assert copies.sps.tolist() == program.g["sp"].tolist()
    for row in range(3):
        assert set(copier.copy(row)) == {int(program.g["sp"][row])}
        assert len(copier.copy(row)) == 8


def test_no_copy_is_longer_than_its_window() -> None:
    program = Program(1)
    program.g["sp"] -= np.uint64(1024)
    copier = program.copier(window_bytes=256)
    copier.plan(program.places())
    assert copier.read().is_exact.all()
    assert len(copier.copy(0)) == 32


def test_memory_for_many_is_given_back() -> None:
    program = Program(20)
    copier, copies = read(program)
    assert copies.is_exact.all()
    assert len(copier.words) >= 20
    copier.plan(program.places().part(slice(0, 4)))
    assert len(copier.words) >= 20  # perhaps more of them move next time
    copier.plan(program.places().part(slice(0, 2)))
    assert len(copier.words) < 20
    assert copier.read().is_exact.tolist() == [True] * 2
    copier.plan(program.places())
    copier.forget()
    assert len(copier.words) == 1
    copier.plan(program.places())
    assert copier.read().is_exact.all()


def test_a_change_of_anything_in_runtime_g_while_its_stack_is_read_is_seen() -> None:
    for name in KIND.names or ():
        program = Program(2)

        def change(what: str, number: int, name: str = name, program: Program = program) -> None:
            if what == "stack" and number == 1:
                program.g[name][number] += 1

        program.before_read = change
        _, copies = read(program)
        assert copies.is_exact.tolist() == [True, False], name
        assert copies.is_same.tolist() == [True, False], name


def test_a_stack_elsewhere_is_not_exact() -> None:
    """It moved on before, and stood still while it was read."""
    program = Program(2)
    places = program.places()
    program.g["sp"][1] -= np.uint64(16)
    copier = program.copier()
    copier.plan(places)
    copies = copier.read()
    assert copies.is_same.tolist() == [True, True]
    assert copies.is_there.tolist() == [True, False]
    assert copies.is_exact.tolist() == [True, False]


def test_one_that_runs_is_settled_and_has_no_stack() -> None:
    program = Program(2)
    program.g["status"][1] = RUNNING
    _, copies = read(program)
    assert copies.sps.tolist() == [int(program.g["sp"][0]), 0]
    assert copies.is_exact.tolist() == [True, False]
    assert copies.is_settled.tolist() == [True, True]


def test_what_can_not_be_read_does_not_hide_the_others() -> None:
    program = Program(5)
    program.unreadable = {0, 2, 3}
    _, copies = read(program)
    assert copies.is_exact.tolist() == [False, True, False, False, True]


def test_those_that_moved_are_read_again_where_they_are_now() -> None:
    program = Program(AT_ONCE + 10)
    moving = {3: 1, AT_ONCE + 2: 2}  # how often each moves

    def move(what: str, number: int) -> None:
        if what == "stack" and moving.get(number, 0):
            moving[number] -= 1
            program.g["sequence"][number] += 1
            program.g["sp"][number] -= np.uint64(8)

    program.before_read = move
    copier, seen = program.copier(), dict[int, int]()

    def use(numbers: npt.NDArray[np.int64], copies: Copies) -> npt.NDArray[np.bool_]:
        settled = copies.is_settled
        seen.update(zip(numbers[settled].tolist(), copies.sps[settled].tolist(), strict=True))
        return settled

    left = copier.read_until_settled(program.places(), use, (0,) * 3)
    assert left.tolist() == [AT_ONCE + 2]
    left = copier.read_until_settled(program.places(), use, (0,) * 4)
    assert left.tolist() == []
    assert seen == dict(enumerate(program.g["sp"].tolist()))


def test_what_is_read_later_belongs_to_those_that_are_still_the_same() -> None:
    program = Program(3)
    copier, _ = read(program)
    program.g["sequence"][2] += 1
    assert copier.are_same(np.array([0, 2])).tolist() == [True, False]
