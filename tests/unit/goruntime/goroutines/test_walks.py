"""Where walks of stacks begin and end, on stacks that are made up."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from ebpfprof.goruntime.goroutines.stack_walk import StackWalker, Walk
from ebpfprof.goruntime.goroutines.table_walk import StackCopy, TableWalker
from ebpfprof.goruntime.waits.lock_waits import frame_pointers
from tests.fuzz.ways.made_up import made_up_memory
from tests.images.image import VERSIONS, image

PC, CALLER = 0x401000, 0x402000
SP = 0xC000_1000_00
BP = SP + 0x20
GIB = 1 << 30


def memory_of(words: dict[int, int]) -> Any:  # noqa: ANN401 - the made-up memory of a test
    return made_up_memory((at, struct.pack("<Q", word)) for at, word in words.items())


@pytest.mark.parametrize(
    ("hi", "walk"),
    [
        (SP + GIB, Walk((PC, CALLER), is_whole=True)),
        (SP + GIB + 8, Walk((PC,), is_whole=False)),
        (SP, Walk((PC,), is_whole=False)),
    ],
)
def test_a_stack_is_as_large_as_go_lets_it_be(hi: int, walk: Walk) -> None:
    memory = memory_of({SP + at: 0 for at in range(0, 1 << 14, 8)} | {BP: 0, BP + 8: CALLER})
    walker = StackWalker(memory, None, 0, most=100)
    assert walker.in_memory(hi, PC, SP, BP) == walk


def test_a_function_that_has_not_made_its_frame_has_its_caller_on_top() -> None:
    binary = image(VERSIONS[-1]).program.binary
    (main,) = binary.functions_named("main.main")
    data = struct.pack("<QQ", main.entry + 1, 0)
    stack = StackCopy(main.entry, SP, SP + len(data), False, SP, data)
    walk = TableWalker(binary, 0).walk(stack, most=1)
    assert walk.pcs == (main.entry,)
    assert walk.ends == (SP + 8,)


@pytest.mark.parametrize(
    ("caller", "found"),
    [(BP + 0x10, BP + 0x10), (BP, 0), (BP - 8, 0), (BP + 0x38, BP + 0x38), (BP + 0x40, 0)],
)
def test_a_frame_pointer_leads_upwards_and_not_out_of_the_stack(caller: int, found: int) -> None:
    goroutine: Any = SimpleNamespace(words=SimpleNamespace(bp=BP, hi=BP + 0x40))
    memory = memory_of({BP: caller})
    assert frame_pointers(memory, [goroutine], [1]).tolist() == [found]
    assert frame_pointers(memory, [goroutine], [0]).tolist() == [BP]
