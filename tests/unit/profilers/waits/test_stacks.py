"""Stacks out of many addresses at once: the same as frame by frame."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.process import Target
from ebpfprof.profile.model import Mapping
from ebpfprof.profilers.waits.rows import Waiting
from ebpfprof.profilers.waits.wait_stacks import StackTranslator, WaitStack
from symbolizer import ElfFile, FuncRole, GoBinary
from symbolizer.codeanalysis.cgo_callback import cgo_callback
from symbolizer.codeanalysis.park_sites import probe_sites
from tests.builds import versions
from tests.toolchains import toolchain

pytestmark = pytest.mark.machine

BLOCKOPS: Final = Path(__file__).parents[3] / "targets" / "blockops"
BIAS: Final = 0x1000_0000
STACKS: Final = 600
SEARCHED: Final = 4_000
SHIMS: Final = ("sync.runtime_SemacquireMutex", "internal/sync.runtime_SemacquireMutex")
SLOW: Final = ("sync.(*Mutex).lockSlow", "internal/sync.(*Mutex).lockSlow")
RELEASES: Final = ("runtime.semrelease1", "sync.runtime_Semrelease")
UNLOCK: Final = ("runtime.unlock2",)


@cache
def go_target(version: str) -> GoTarget:
    binary = GoBinary.open(ElfFile.open(toolchain(version).build(BLOCKOPS, "cgo")))
    start, end = binary.text_start + BIAS, binary.text_end + BIAS
    return GoTarget(
        Target.__new__(Target),
        "/usr/bin/blockops",
        binary,
        BIAS,
        (Mapping(start, end, 0x1000, "/usr/bin/blockops", "c0ffee"),),
        probe_sites(binary),
        cgo_callback(binary),
    )


class Stacks:
    """Makes up stacks of a program: of all kinds of return addresses, in any order."""

    def __init__(self, go: GoTarget, seed: int) -> None:
        self._random = random.Random(seed)
        binary = go.binary
        found = binary.frames_many(
            self._random.randrange(binary.text_start + 1, binary.text_end) for _ in range(SEARCHED)
        )
        self._plain = [pc for pc, frames in found.items() if len(frames) == 1]
        self._inlined = [pc for pc, frames in found.items() if len(frames) > 1]
        self._wrappers = [
            pc for pc, frames in found.items() if any(f.role is FuncRole.WRAPPER for f in frames)
        ]
        self._callbacks = self._inside(go, ("runtime.cgocallback",))
        self._ends = self._inside(go, ("runtime.goexit",))
        parks = [park.return_pc - 1 for park in go.sites.parks]
        semaphores = [park.return_pc - 1 for park in go.sites.parks if park.is_semaphore]
        shims, slow = self._inside(go, SHIMS), self._inside(go, SLOW)
        self._leaves: dict[Waiting, list[list[list[int]]]] = {
            "block": [[parks], [semaphores, shims], [semaphores, shims, slow]],
            "mutex": [
                [self._inside(go, (name,)) for name in RELEASES],
                [self._inside(go, UNLOCK)],
            ],
        }

    def _inside(self, go: GoTarget, names: tuple[str, ...]) -> list[int]:
        found = [f for name in names for f in go.binary.functions_named(name)]
        assert found, names
        return [pc for f in found for pc in range(f.entry + 1, f.end)]

    def one(self, kind: Waiting) -> tuple[int, ...]:
        leaf = self._random.choice(self._leaves[kind])
        pcs = [self._random.choice(each) for each in leaf]
        oddity = self._random.choice([[], [], self._wrappers, self._callbacks])
        for _ in range(self._random.choice([0, 3, 9, 20, 40, 118, 126, 132])):
            chosen = self._random.choice([self._plain, self._plain, self._inlined])
            if oddity and self._random.random() < 0.05:
                chosen = oddity
            pcs.append(self._random.choice(chosen))
        if self._random.random() < 0.8:
            pcs.append(self._random.choice(self._ends))
        elif self._random.random() < 0.2:
            pcs.append(0x7F00_0000_0000)
        return tuple(pc + 1 + BIAS for pc in pcs[:136])


@pytest.mark.parametrize("depth", [6, 12, None])
@pytest.mark.parametrize("version", versions("1.22", "1.27"))
def test_stacks_equal_those_made_frame_by_frame(version: str, depth: int | None) -> None:
    go = go_target(version)
    made = Stacks(go, seed=7)
    kinds: tuple[Waiting, Waiting] = ("block", "mutex")
    stacks = [(kind, made.one(kind)) for kind in kinds for _ in range(STACKS)]
    translator = StackTranslator(go)
    if depth:
        translator._rules = replace(translator._rules, max_depth=depth)
    translator.look_up(pc for _, pcs in stacks for pc in pcs)
    seen = [shown(translator.stack(*each)) for each in stacks]

    assert seen == [shown(translator._odd_stack(*each)) for each in stacks]
    assert {each[1] for each in seen if each} == {True, False}
    assert sum(each is None for each in seen) < len(seen) / 2


def shown(stack: WaitStack | None) -> tuple[object, ...] | None:
    return None if stack is None else (stack.locations, stack.is_cut, hash(stack))
