"""The labels that say for which lock a sample waited, or which it released."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ebpfprof.profile.delta import merged
from ebpfprof.profile.model import Label, Profile

LOCK: Final = "lock"
ADDRESS: Final = "lock_address"
OTHER_LOCKS: Final = (Label(LOCK, "other locks"), Label(ADDRESS, "several"))
"""Of samples of all locks that can't be distinguished, since there are too many."""


def lock_labels(name: str | None, address: int) -> tuple[Label, ...]:
    """The labels of one lock, which stand behind all others; `name` is None if it is unknown."""
    shown = Label(ADDRESS, f"{address:#x}")
    return (Label(LOCK, name), shown) if name else (shown,)


def without_locks(profile: Profile) -> Profile:
    """The profile as it is without these labels: samples that differ in them only are added up."""
    if not any(sample.labels and sample.labels[-1].key == ADDRESS for sample in profile.samples):
        return profile
    samples = tuple(
        replace(sample, labels=_others(sample.labels)) if sample.labels else sample
        for sample in profile.samples
    )
    return replace(
        merged([replace(profile, samples=samples)]),
        comments=profile.comments,
        account=profile.account,
    )


def _others(labels: tuple[Label, ...]) -> tuple[Label, ...]:
    if labels[-1].key != ADDRESS:
        return labels
    labels = labels[:-1]
    return labels[:-1] if labels and labels[-1].key == LOCK else labels
