"""Where objects were allocated: those that Go's own memory profile sampled have a special."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.heap.bucket_list import BucketList
from ebpfprof.goruntime.references.specials import specials
from symbolizer.codeanalysis.heap_globals import heap_globals

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.references.slots import Slots


def sampled_at(go: GoTarget, slots: Slots, function: str) -> npt.NDArray[np.int64]:
    """The slots of sampled objects whose stack has a function of that name.

    Raises TargetGone, UnreadableMemory or GoTableError (its code is unknown).
    """
    memory, layout = go.target.memory, go.binary.layout
    kept = specials(memory, layout, slots)
    chosen = np.flatnonzero((kept.kinds == layout.special_kinds["Profile"]) & (kept.slots >= 0))
    buckets = BucketList(memory, layout, heap_globals(go.binary).buckets + go.load_bias)
    buckets.update()
    header = layout.size("bucket")
    frames = StackFrames(go)
    frames.look_up(pc for stack in buckets.stacks for pc in stack)
    wanted = [
        record - header - 8 * len(stack)
        for stack, record in zip(buckets.stacks, buckets.records.tolist(), strict=True)
        if any(frame.function == function for frame in frames.of(stack))
    ]
    is_wanted = np.isin(kept.pointers[chosen], np.array(wanted, np.uint64))
    return np.unique(kept.slots[chosen[is_wanted]])
