"""What BPF programs lost, from the numbers that they count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.profile.losses import Loss

if TYPE_CHECKING:  # numpy takes long to import: only when maps are read
    import numpy.typing as npt


def losses(
    counts: npt.ArrayLike, more: Mapping[str, Mapping[int, int]] | None = None
) -> tuple[Loss, ...]:
    """Those kinds that were counted at all, from the values of the `losses` array.

    It has as many for each target as there are kinds. `more` is what was lost of these outside of
    the kernel, by name and target.
    """
    import numpy as np

    kinds, all_counts = loss_kinds(), np.asarray(counts)
    lost_at = np.flatnonzero(all_counts)
    sums = dict(zip(lost_at.tolist(), all_counts[lost_at].tolist(), strict=True))
    for kind, (name, _) in enumerate(kinds):
        for target, count in (more or {}).get(name, {}).items():
            at = target * len(kinds) + kind
            if count and at < len(all_counts):
                sums[at] = sums.get(at, 0) + count
    return tuple(
        Loss(*kinds[at % len(kinds)], count, target=at // len(kinds))
        for at, count in sorted(sums.items())
    )
