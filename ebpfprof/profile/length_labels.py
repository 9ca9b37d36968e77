"""Lengths of waits in files: samples with the numeric label `wait`, one for each bucket of lengths.

So `go tool pprof -tagfocus=wait=10ms:` shows only waits of 10 ms or longer. Readers put the samples
of a stack together again, with the histogram of their lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import Label, Profile, Sample
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram

KEY: Final = "wait"
UNIT: Final = "nanoseconds"
_VALUES: Final = 2  # how many waits, and their time
_INT64_MAX: Final = (1 << 63) - 1
_Key = tuple[tuple[int, ...], tuple[Label, ...]]


def by_length(profile: Profile) -> Profile:
    """A copy whose samples have one length each, in the label KEY: the middle of a bucket.

    Counts and delays add up to those of the profile. Waits of unknown length have no such label.
    """
    samples = tuple(part for sample in profile.samples for part in _parts(sample))
    return replace(profile, samples=samples)


def put_together(profile: Profile) -> Profile:
    """The profile of a file with the samples of a stack as one, which has the lengths of its waits.

    A profile without the label KEY stays as it is. Raises InvalidProfile if values don't fit into
    64 bits.
    """
    is_labelled = any(_is_length(label) for sample in profile.samples for label in sample.labels)
    if not is_labelled or len(profile.sample_types) != _VALUES:
        return profile
    samples = tuple(_whole(profile.samples))
    if any(abs(value) > _INT64_MAX for sample in samples for value in sample.values):
        raise InvalidProfile("The values of a stack's samples add up to more than 64 bits.")
    return replace(profile, samples=samples, has_length_labels=True)


def _whole(samples: Sequence[Sample]) -> Iterator[Sample]:
    whole: dict[_Key, Sample] = {}
    numbers: dict[_Key, dict[int, float]] = {}
    for sample in samples:
        ns = next((label.value for label in sample.labels if _is_length(label)), None)
        labels = tuple([label for label in sample.labels if not _is_length(label)])
        key = tuple(map(id, sample.locations)), labels
        known = whole.get(key)
        values = sample.values
        if known:
            values = tuple([one + more for one, more in zip(known.values, values, strict=True)])
        whole[key] = replace(known or sample, values=values, labels=labels)
        if isinstance(ns, int):
            buckets = numbers.setdefault(key, {})
            bucket = SCALE.bucket_of(ns)
            buckets[bucket] = buckets.get(bucket, 0) + sample.values[0]
    for key, sample in whole.items():
        yield replace(sample, lengths=WaitHistogram.counted(numbers.get(key, {})))


def _is_length(label: Label) -> bool:
    value = label.value
    return label.key == KEY and label.unit == UNIT and isinstance(value, int) and value >= 0


def _parts(sample: Sample) -> Iterator[Sample]:
    count, delay_ns = sample.values
    known = [(bucket, number) for bucket, number in sample.lengths.rows() if number > 0]
    total = sum(number for _, number in known)
    if not known or count <= 0:
        yield sample
        return
    scale = min(1.0, count / total)
    mean_ns = delay_ns / count
    parts = [(SCALE.middle_ns(bucket), scale * number) for bucket, number in known]
    rest = count - scale * total
    whole_ns = sum(ns * number for ns, number in parts) + rest * mean_ns
    seen = seen_ns = 0.0
    done, done_ns = 0, 0
    for ns, number in [*parts, (None, rest)]:
        seen += number
        seen_ns += number * (mean_ns if ns is None else ns)
        # Differences of rounded sums, so that the parts add up to the whole.
        values = round(seen) - done, round(delay_ns * seen_ns / whole_ns) - done_ns
        if ns is None:
            values = count - done, delay_ns - done_ns
        done, done_ns = done + values[0], done_ns + values[1]
        if any(values):
            label = () if ns is None else (Label(KEY, int(ns), UNIT),)
            yield replace(
                sample,
                values=values,
                labels=(*sample.labels, *label),
                variance=0.0,
                count_variance=0.0,
                lengths=WaitHistogram(),
            )
