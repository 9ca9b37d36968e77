"""Stacks that were walked before are recognised, and no others."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ebpfprof.goruntime.goroutines.seen_stacks import UNKNOWN, SeenStack, SeenStacks
from ebpfprof.goruntime.goroutines.stack_copies import WINDOW_WORDS, Copies

SP = 0xC000_1000_00
ALL = np.array([0])


class Stack:
    """A goroutine in wait `wait`, and its stack: frames as (words from the last one, return)."""

    def __init__(self, sp: int, wait: int, frames: list[tuple[int, int]], noise: int = 7) -> None:
        chance = random.Random(noise)
        self.words = np.zeros((1, WINDOW_WORDS + 1), np.uint64)
        self.words[0, :200] = [chance.getrandbits(60) for _ in range(200)]
        self.read_at: list[int] = []
        at, places = 0, []
        for apart, _ in frames:
            at += apart
            places.append(at)
        for place, after, (_, pc) in zip(places, [*places[1:], None], frames, strict=True):
            self.words[0, place] = sp + 8 * after if after else 0
            self.words[0, place + 1] = pc
            self.read_at += (place, place + 1)
        self.pcs = (0x401000, *(pc for _, pc in frames))
        one = {
            "waits": wait,
            "pcs": self.pcs[0],
            "sps": sp,
            "bps": sp + 8 * places[0] if places else 0,
        }
        values: dict[str, Any] = {  # three columns are of bool; nothing here reads them
            name: np.array([one.get(name, 0)], np.uint64) for name in Copies._fields
        }
        kind = [("hi", np.uint64), ("start_pc", np.uint64)]
        values["g"] = np.array([(sp + 8 * 200, 0x402000)], kind)
        self.copies = Copies(**values)

    def column(self, name: str) -> Any:  # noqa: ANN401 - a column of numpy
        return self.copies.g[name] if name in ("hi", "start_pc") else getattr(self.copies, name)

    def found(self, seen: SeenStacks) -> int:
        return int(seen.find(self.copies, ALL, self.words)[0])


FRAMES = [(2, 0x401100), (3, 0x401200), (9, 0x401300)]
WAIT = 14 << 8 | 4


def learnt(seen: SeenStacks, stack: Stack, state: int) -> None:
    seen.learn(stack.copies, 0, stack.words, SeenStack(stack.pcs, -1, state))


def test_the_same_stack_of_another_goroutine_is_found_with_its_state() -> None:
    seen = SeenStacks()
    first = Stack(SP, WAIT, FRAMES)
    assert first.found(seen) == UNKNOWN
    learnt(seen, first, 5)
    other = Stack(SP + 0x8000, 77 << 24 | WAIT, FRAMES, noise=8)
    found = seen.stacks[other.found(seen)]
    assert (found.pcs, found.kept, found.sema_at) == (first.pcs, 5, -1)


def test_a_stack_that_differs_in_anything_that_a_walk_reads_is_not_found() -> None:
    seen = SeenStacks()
    learnt(seen, Stack(SP, WAIT, FRAMES), 5)
    for at in Stack(SP, WAIT, FRAMES).read_at:
        changed = Stack(SP, WAIT, FRAMES)
        changed.words[0, at] += 8
        assert changed.found(seen) == UNKNOWN
    for name in ("waits", "hi", "start_pc", "pcs", "bps"):
        changed = Stack(SP, WAIT, FRAMES)
        changed.column(name)[0] += 8
        assert changed.found(seen) == UNKNOWN
    shorter = Stack(SP, WAIT, FRAMES[:2])
    assert shorter.found(seen) == UNKNOWN


def test_stacks_of_any_shape_keep_their_numbers_as_more_are_learnt() -> None:
    seen = SeenStacks()
    chance = random.Random(23)
    stacks: list[tuple[list[tuple[int, int]], Stack]] = []
    for number in range(150):
        depth = chance.randrange(1, 12)
        frames = [(chance.randrange(2, 9), 0x401000 + 16 * number + n) for n in range(depth)]
        # A shape that another stack has, too, is among them: what differs is who called.
        if number % 3 == 2:
            frames = [(apart, pc + 1) for apart, pc in stacks[-1][0]]
        stack = Stack(SP + 0x100 * number, number << 24 | WAIT, frames)
        stack.column("start_pc")[0] += 16 * (number - (number % 3 == 2))
        stacks.append((frames, stack))
        learnt(seen, stack, number)
        for state, (_, each) in enumerate(stacks):
            found = each.found(seen)
            assert found != UNKNOWN
            assert (seen.stacks[found].pcs, seen.stacks[found].kept) == (each.pcs, state)


def test_a_stack_that_is_too_deep_is_not_kept() -> None:
    seen = SeenStacks()
    deep = Stack(SP, WAIT, [(2, 0x401000 + n) for n in range(33)])
    learnt(seen, deep, 1)
    assert deep.found(seen) == UNKNOWN
    assert seen.stacks == []


def test_room_is_bounded() -> None:
    seen = SeenStacks(max_stacks=10)
    for number in range(25):
        stack = Stack(SP, WAIT, [(2, 0x401000 + 16 * number)])
        learnt(seen, stack, number)
        assert seen.stacks[stack.found(seen)].kept == number
        assert len(seen.stacks) <= 10
