"""Walks the stacks of many goroutines at once along their frame pointers, in copies of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

WINDOW_BYTES: Final = 1024
"""Of a stack, from the stack pointer on: most stacks are smaller."""
_WORDS: Final = WINDOW_BYTES // 8
_NO_BP: Final = 0


class Walk(NamedTuple):
    """The addresses on a stack, innermost first; whether they reach its outermost function."""

    pcs: tuple[int, ...]
    is_whole: bool


def walk_all(
    his: npt.NDArray[np.uint64],
    pcs: npt.NDArray[np.uint64],
    sps: npt.NDArray[np.uint64],
    bps: npt.NDArray[np.uint64],
    windows: npt.NDArray[Any],
) -> list[Walk | None]:
    """Walk each stack, which ends at `his`, from its pc, stack pointer and frame pointer.

    `windows` has the first bytes of each stack, all 0 where they can't be read. A stack that goes
    on beyond is None. Where the stack pointer is 0 there is no stack. A goroutine that has not
    begun to run has no frame pointer: its stack is its pc alone.
    """
    count = len(pcs)
    words = windows.view(np.uint64).reshape(count, _WORDS) if count else np.zeros((0, _WORDS))
    rows = np.arange(count)
    bp = bps.astype(np.int64)
    sp, hi = sps.astype(np.int64), his.astype(np.int64)
    is_slow = (bp != _NO_BP) & ~words.any(axis=1)
    is_on = (bp != _NO_BP) & ~is_slow
    is_whole = sps != 0
    found: list[npt.NDArray[np.uint64]] = [np.where(sps != 0, pcs, 0)]
    for _ in range(_WORDS // 2):
        if not is_on.any():
            break
        at = bp - sp
        is_inside = (at >= 0) & (bp + 16 <= hi) & (at % 8 == 0)
        is_whole &= ~is_on | is_inside
        is_far = is_on & is_inside & (at > WINDOW_BYTES - 16)
        is_slow |= is_far
        is_on &= is_inside & ~is_far
        index = np.where(is_on, at // 8, 0)
        next_bp = words[rows, index].astype(np.int64)
        found.append(np.where(is_on, words[rows, np.minimum(index + 1, _WORDS - 1)], 0))
        ends = next_bp == _NO_BP
        is_whole &= ~is_on | ends | (next_bp > bp)
        is_on &= ~ends & (next_bp > bp)
        bp = np.where(is_on, next_bp, bp)
    columns = np.stack(found, axis=1)
    known: dict[bytes, tuple[int, ...]] = {}
    walks: list[Walk | None] = []
    for row, whole in zip(columns, is_whole.tolist(), strict=True):
        key = row.tobytes()
        stack = known.get(key)
        if stack is None:
            stack = known[key] = tuple(pc for pc in row.tolist() if pc)
        walks.append(Walk(stack, whole))
    for number in np.flatnonzero(is_slow).tolist():
        walks[number] = None
    return walks
