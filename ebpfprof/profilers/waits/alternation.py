"""The error of counts where goroutines wait in regular turns.

Go tracks each eighth stop of a goroutine. One that waits at A, B, A, B ... is tracked at A alone or
at B alone, until one more stop shifts its turns. Then A counts twice as often as it was, or never.
With goroutines that begin at different moments that cancels out, but only on average.

The kernel adds up how long a goroutine was tracked at one stack without another one in between: the
squares of the numbers of such waits in a row. What is beyond those of a random order is taken for
turns. A row of n waits at a stack with the share p of the waits of such goroutines makes its count
wrong by 8 n (1 - p), and a row at another one by 8 n p.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.rows import KnownStack, StackSums
from ebpfprof.profilers.waits.sampled_sums import SampledSums
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

_ENOUGH: Final = 20  # waits
_NONE: Final = StackSums()
_Group = tuple[int, tuple[Label, ...]]


def alternation_variances(
    sums: SampledSums, group_of: Callable[[tuple[int, ...]], int]
) -> dict[KnownStack, float]:
    """What alternation adds to the variances of the counts of stacks that waited.

    `group_of` returns what goroutines with this stack have in common: the function that they began
    with. Those of one group, which have the same labels, may wait at any of its stacks.
    """
    stacks = [stack for stack in {**sums.eighth, **sums.windowed} if stack.kind == "block"]
    groups = {stack: (group_of(stack.return_pcs), stack.labels) for stack in stacks}
    parts = (sums.eighth, max(1.0, sums.scale)), (sums.windowed, sums.scale)
    parks = {stack: sum(part.get(stack, _NONE).parks for part, _ in parts) for stack in stacks}
    of_groups = defaultdict[_Group, float](float)
    at_first = defaultdict[_Group, float](float)
    rows_of_groups = defaultdict[_Group, float](float)
    for stack, group in groups.items():
        of_groups[group] += parks[stack]
    for stack, sums_of_stack in sums.every.items():
        if stack.kind == "block":
            at_first[group_of(stack.return_pcs), stack.labels] += sums_of_stack.count
    shares, rows = dict[KnownStack, float](), dict[KnownStack, float]()
    for stack, group in groups.items():
        share = parks[stack] / of_groups[group] if of_groups[group] else 1.0
        if (before := sums.every.get(stack, _NONE).count) and at_first[group] >= _ENOUGH:
            share = before / at_first[group]  # turns don't change this one
        shares[stack] = share
        rows[stack] = sum(
            scale**2 * _beyond_chance(part.get(stack, _NONE), share) for part, scale in parts
        )
        rows_of_groups[group] += rows[stack]
    variances = {}
    for stack, group in groups.items():
        own = (1 - shares[stack]) ** 2 * rows[stack]
        others = shares[stack] ** 2 * (rows_of_groups[group] - rows[stack])
        variances[stack] = TRACKING_PERIOD**2 * (own + others)
    return variances


def _beyond_chance(sums: StackSums, share: float) -> float:
    """The sum of the squares of rows, less what it is where waits come in random order."""
    if share >= 1:
        return 0.0
    return max(0.0, sums.row_squares - sums.parks * (1 + share) / (1 - share))
