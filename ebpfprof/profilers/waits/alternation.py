"""The error of counts where goroutines wait in regular turns.

Go tracks each eighth stop of a goroutine. One that waits at A, B, A, B ... is tracked at A alone or
at B alone, until one more stop shifts its turns. Then A counts twice as often as it was, or never.
With goroutines that begin at different moments that cancels out, but only on average.

The kernel adds up how long a goroutine was tracked at one stack without another one in between: the
squares of the numbers of such waits in a row. Of a row of n waits at a stack with the share p of
the waits of such goroutines, the count is wrong by 8 n (1 - p) at most. In random order rows are
short, and the sum is the usual error of a sample of one in eight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from ebpfprof.profilers.waits.rows import KnownStack, StackSums
from ebpfprof.profilers.waits.sampled_sums import SampledSums
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

_NONE: Final = StackSums()


def alternation_variances(
    sums: SampledSums, group_of: Callable[[tuple[int, ...]], int]
) -> dict[KnownStack, float]:
    """What alternation adds to the variances of the counts of stacks that waited.

    `group_of` returns what goroutines with this stack have in common: the function that they began
    with. Those of one group may wait at any of its stacks.
    """
    stacks = [stack for stack in {**sums.eighth, **sums.windowed} if stack.kind == "block"]
    groups = {stack: group_of(stack.return_pcs) for stack in stacks}
    parks, of_groups = defaultdict[KnownStack, float](float), defaultdict[int, float](float)
    for stack, group in groups.items():
        for part in (sums.eighth, sums.windowed):
            count = part.get(stack, _NONE).parks
            parks[stack] += count
            of_groups[group] += count
    found = {}
    for stack, group in groups.items():
        others = 1 - parks[stack] / of_groups[group] if of_groups[group] else 0.0
        eighth, windowed = sums.eighth.get(stack, _NONE), sums.windowed.get(stack, _NONE)
        rows = max(0.0, eighth.row_squares - eighth.parks)
        rows += sums.scale**2 * max(0.0, windowed.row_squares - windowed.parks)
        found[stack] = (TRACKING_PERIOD * others) ** 2 * rows
    return found
