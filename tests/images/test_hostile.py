"""Images with memory that lies: each reader ends soon, with an answer or a typed error."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ebpfprof.errors import EbpfprofError
from symbolizer.errors import SymbolizerError
from tests.images.image import VERSIONS, image
from tests.images.pages import PAGE_SHIFT, ChangedBytes, NotSaved, SavedBytes
from tests.images.readers import READERS
from tests.images.target import SavedTarget

MOST_CPU_S = 30.0
"""Of a reader: 20 ms of memory without lies, seconds where a list is as long as can be."""


class Noting(ChangedBytes):
    """Memory that notes what is read of it."""

    def __init__(self, saved: SavedBytes) -> None:
        super().__init__(saved, {}, frozenset())
        self.reads: dict[tuple[int, int], None] = {}

    def up_to(self, address: int, size: int) -> bytes:
        self.reads[address, size] = None
        return super().up_to(address, size)


@cache
def reads_of(version: str, reader: str) -> list[tuple[int, int]]:
    """Where a reader reads, and how much."""
    memory = Noting(image(version).memory)
    with image(version).opened(memory) as go:
        READERS[reader](go)
    return list(memory.reads)


def lies(version: str, reader: str, seed: int) -> ChangedBytes:
    """Memory with some wrong words, flipped bits and missing pages among what the reader reads."""
    chance, reads = random.Random(seed), reads_of(version, reader)
    changes, gone = {}, set()
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        address, size = chance.choice(reads)
        at = address + chance.randrange(min(size, 4096)) // 8 * 8
        match chance.randrange(5):
            case 0:
                gone.add(at >> PAGE_SHIFT)
            case 1:
                old = image(version).memory.up_to(at, 8).ljust(8, b"\0")
                word = int.from_bytes(old, "little") ^ 1 << chance.randrange(64)
                changes[at] = word.to_bytes(8, "little")
            case 2:  # another place that it reads: circles, shared tails
                changes[at] = chance.choice(reads)[0].to_bytes(8, "little", signed=False)
            case 3:
                number = chance.choice((0, 1, 0x7FFF_FFFF, (1 << 64) - 1, 1 << 63, 1 << 20))
                changes[at] = number.to_bytes(8, "little")
            case _:
                changes[at] = chance.randbytes(8)
    return ChangedBytes(image(version).memory, changes, gone)


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=20, derandomize=True, phases=[Phase.generate])
@given(version=st.sampled_from(VERSIONS), seed=st.integers(0, 1 << 32))
def test_lies_end_in_an_answer_or_a_typed_error(reader: str, version: str, seed: int) -> None:
    memory = lies(version, reader, seed)
    began_s = time.process_time()
    # Nothing moves, so readers need not wait for it. A lie may lead to parts of the file that no
    # image has: then this example shows nothing.
    with image(version).opened() as go, mock.patch("time.sleep"), suppress(NotSaved):
        go = replace(go, target=SavedTarget(image(version).shown(memory)))
        with suppress(EbpfprofError, SymbolizerError):  # the typed errors; any other one fails
            READERS[reader](go)
    assert time.process_time() - began_s < MOST_CPU_S
