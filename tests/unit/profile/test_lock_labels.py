"""Labels of locks, and profiles without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.profile.lock_labels import OTHER_LOCKS, lock_labels, without_locks
from ebpfprof.profile.model import Label, Profile
from tests.unit.export.small_profile import SMALL

OWN = Label("tenant", "blue")
USERS = Label("lock", "of the program itself")


def labelled(*labels: tuple[Label, ...]) -> Profile:
    """The same stack once with each set of labels."""
    sample = SMALL.samples[0]
    return replace(SMALL, samples=tuple(replace(sample, labels=label) for label in labels))


def test_samples_that_differ_in_locks_only_are_added_up() -> None:
    profile = labelled(
        (OWN, *lock_labels("main.Cache.mu", 0xC0)),
        (OWN, *lock_labels(None, 0xC8)),
        (OWN, *OTHER_LOCKS),
        lock_labels("main.Cache.mu", 0xC0),
        (),
    )
    found = without_locks(profile)
    of_one = SMALL.samples[0].values
    assert [(sample.labels, sample.values) for sample in found.samples] == [
        ((OWN,), tuple(3 * value for value in of_one)),
        ((), tuple(2 * value for value in of_one)),
    ]
    assert (found.time_ns, found.duration_ns) == (SMALL.time_ns, SMALL.duration_ns)
    assert (found.comments, found.account) == (SMALL.comments, SMALL.account)


@pytest.mark.parametrize("labels", [(), (OWN,), (USERS,), (USERS, OWN)])
def test_other_labels_stay(labels: tuple[Label, ...]) -> None:
    profile = labelled(labels)
    assert without_locks(profile) is profile
    both = labelled((*labels, *lock_labels("main.mu", 1)))
    assert without_locks(both).samples[0].labels == labels
