"""Sums and differences of profiles: windows of a recording, comparisons.

Two samples count as the same if their locations and labels are equal. Snapshots of one recording
share their Location objects, which makes this fast.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Final

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Label, Location, Mapping, Profile, Sample
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram

BASE_LABEL = Label("pprof::base", "true")
"""The label of samples of the base of a comparison, as with pprof's -diff_base."""

_INT64_MAX = (1 << 63) - 1
_AT_ONCE: Final = 32
_Key = tuple[tuple[int | None, ...], tuple[Label, ...]]


def difference(later: Profile, earlier: Profile, *, of_moment: Collection[int] = ()) -> Profile:
    """The values of `later` minus those of `earlier`: two snapshots of sums that only grow.

    Values whose index is in `of_moment` are no sums: they are those of `later`.

    As in net/http/pprof's deltas, samples without a change are left out, and a value that decreased
    is negative. The difference covers the time from the end of `earlier` to the end of `later`. If
    both profiles have accounts, its comments describe that time; else they are those of `later`.
    Raises InvalidProfile if the sample types differ.
    """
    require_same_types(later, earlier)
    sums = _Sums()
    sums.add(later.samples, 1)
    sums.add(_sums_alone(earlier.samples, of_moment), -1)
    begin_ns = _in_int64(earlier.time_ns + earlier.duration_ns)
    account = later.account - earlier.account if later.account and earlier.account else None
    return replace(
        later,
        samples=sums.samples(),
        mappings=_mappings((later, earlier)),
        time_ns=begin_ns,
        duration_ns=_in_int64(max(later.time_ns + later.duration_ns - begin_ns, 0)),
        account=account,
    ).accounted(account)


def _sums_alone(samples: Iterable[Sample], of_moment: Collection[int]) -> Iterable[Sample]:
    """The samples with zeros for values that are no sums."""
    if not of_moment:
        return samples
    return (
        replace(
            sample,
            values=tuple(0 if i in of_moment else value for i, value in enumerate(sample.values)),
        )
        for sample in samples
    )


def merged(profiles: Sequence[Profile]) -> Profile:
    """The sum of several profiles, of the kind of the first.

    As in pprof's Merge, the sum begins when the first profile begins, its duration is the sum of
    the durations, and samples with only zeros are left out. If all profiles have accounts, its
    comments describe all that time; else it has the comments of each profile. Raises InvalidProfile
    if the sample types differ, ValueError if there is no profile.
    """
    if not profiles:
        raise ValueError("There is no profile to merge.")
    sums = _Sums()
    for profile in profiles:
        require_same_types(profile, profiles[0])
        sums.add(profile.samples, 1)
    accounts = [profile.account for profile in profiles if profile.account]
    account = reduce(add, accounts) if len(accounts) == len(profiles) else None
    return replace(
        profiles[0],
        samples=sums.samples(),
        mappings=_mappings(profiles),
        period=max(profile.period for profile in profiles),
        time_ns=min(profile.time_ns for profile in profiles),
        duration_ns=_in_int64(sum(profile.duration_ns for profile in profiles)),
        comments=tuple(dict.fromkeys(c for profile in profiles for c in profile.comments)),
        account=account,
    ).accounted(account)


def summed(profiles: Iterable[Profile]) -> Profile:
    """The same with few of the profiles in memory at once. Raises as merged()."""
    sums: list[Profile] = []
    for profile in profiles:
        sums.append(profile)
        if len(sums) == _AT_ONCE:
            sums = [merged(sums)]
    return merged(sums)


def compared(profile: Profile, base: Profile) -> Profile:
    """Both profiles in one, the samples of `base` negative and with BASE_LABEL.

    As with pprof's -diff_base: pprof then shows shares of `base`. The duration is the sum of both.
    Raises InvalidProfile if the sample types differ.
    """
    labelled = [
        replace(sample, labels=(*sample.labels, BASE_LABEL), variance=0.0, count_variance=0.0)
        for sample in base.samples
    ]
    require_same_types(profile, base)
    sums = _Sums()
    sums.add(profile.samples, 1)
    sums.add(labelled, -1)
    return replace(
        profile,
        samples=sums.samples(),
        mappings=_mappings((profile, base)),
        time_ns=min(profile.time_ns, base.time_ns),
        duration_ns=_in_int64(profile.duration_ns + base.duration_ns),
    )


def normalized(profile: Profile, base: Profile, *, hides_idle: bool = False) -> Profile:
    """`profile` scaled so that each of its totals equals that of `base`, as pprof's -normalize.

    If idle waits are hidden, they don't count in the totals.
    This makes profiles of different duration or load comparable. The result has the duration of
    `base`, so that the flame graph does not scale it again. Raises InvalidProfile if the sample
    types differ.
    """
    require_same_types(profile, base)
    ratios = [
        of_base / total if total else 0.0
        for total, of_base in zip(
            *(totals(split(side)[0] if hides_idle else side) for side in (profile, base)),
            strict=True,
        )
    ]

    def scale(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(round(value * ratio) for value, ratio in zip(values, ratios, strict=True))

    return replace(_with_values(profile, scale), duration_ns=base.duration_ns)


def of_same_length(profile: Profile, base: Profile) -> Profile:
    """`profile` scaled to the duration of `base`, so that sums compare as rates do.

    Variances are scaled, too. Raises InvalidProfile if the sample types differ or a duration is not
    known.
    """
    require_same_types(profile, base)
    if min(profile.duration_ns, base.duration_ns) <= 0:
        raise InvalidProfile(
            "One of the profiles has no duration: they can't be compared per second."
        )

    factor = base.duration_ns / profile.duration_ns

    def scale(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(round(value * base.duration_ns / profile.duration_ns) for value in values)

    scaled = (
        replace(
            sample,
            values=_checked(scale(sample.values)),
            variance=factor**2 * sample.variance,
            count_variance=factor**2 * sample.count_variance,
            lengths=factor * sample.lengths,
        )
        for sample in profile.samples
    )
    kept = tuple(sample for sample in scaled if any(sample.values))
    return replace(profile, samples=kept, duration_ns=base.duration_ns)


def totals(profile: Profile) -> list[int]:
    """The sum of each column of values."""
    return [
        sum(sample.values[index] for sample in profile.samples)
        for index in range(len(profile.sample_types))
    ]


def require_same_types(first: Profile, second: Profile) -> None:
    """Raise InvalidProfile unless both profiles have the same sample types."""
    if first.sample_types != second.sample_types:
        one, two = (
            ", ".join(f"{value_type.type}/{value_type.unit}" for value_type in profile.sample_types)
            or "nothing"
            for profile in (first, second)
        )
        raise InvalidProfile(
            f"One of the profiles counts {one}, the other {two}: only profiles of the same kind "
            "can be compared or added up."
        )


def _with_values(profile: Profile, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Profile:
    changed = ((sample, _checked(change(sample.values))) for sample in profile.samples)
    return replace(
        profile,
        samples=tuple(
            replace(earlier, values=values, variance=0.0, count_variance=0.0, lengths=NO_LENGTHS)
            for earlier, values in changed
            if any(values)
        ),
    )


_EXACT: Final = 0.0, 0.0


class _Sums:
    """Samples added up by their locations and labels."""

    def __init__(self) -> None:
        self._numbers: dict[Location, int] = {}
        # The object's id() is a cheaper key than a Location, and stable: the caller's profiles
        # keep all objects alive.
        self._by_id: dict[int, int] = {}
        self._sums: dict[_Key, tuple[Sample, list[int]]] = {}
        self._variances: dict[_Key, tuple[float, float]] = {}
        self._lengths: dict[_Key, WaitHistogram] = {}

    def add(self, samples: Iterable[Sample], factor: int) -> None:
        by_id, sums = self._by_id, self._sums
        for sample in samples:
            stack = tuple(map(by_id.get, map(id, sample.locations)))
            if None in stack:  # rare: most locations have a number already
                stack = tuple(map(self._number, sample.locations))
            key = (stack, sample.labels)
            if sample.variance or sample.count_variance:
                # Those of a later snapshot include those of an earlier one.
                value, count = self._variances.get(key, _EXACT)
                value = max(0.0, value + factor * sample.variance)
                self._variances[key] = value, max(0.0, count + factor * sample.count_variance)
            if sample.lengths:
                so_far = self._lengths.get(key, NO_LENGTHS)
                self._lengths[key] = so_far + factor * sample.lengths
            known = sums.get(key)
            if known is None:
                sums[key] = (sample, [factor * value for value in sample.values])
                continue
            values = known[1]
            for index, value in enumerate(sample.values):
                values[index] += factor * value

    def _number(self, location: Location) -> int:
        number = self._by_id.get(id(location))
        if number is None:
            number = self._numbers.setdefault(location, len(self._numbers))
            self._by_id[id(location)] = number
        return number

    def samples(self) -> tuple[Sample, ...]:
        """The sums that are not all zero, in the order in which their samples were added first."""
        kept = []
        for key, (sample, values) in self._sums.items():
            if any(values):
                variance, count_variance = self._variances.get(key, _EXACT)
                kept.append(
                    replace(
                        sample,
                        values=_checked(tuple(values)),
                        variance=variance,
                        count_variance=count_variance,
                        lengths=self._lengths.get(key, NO_LENGTHS),
                    )
                )
        return tuple(kept)


def _checked(values: tuple[int, ...]) -> tuple[int, ...]:
    for value in values:
        if not -_INT64_MAX <= value <= _INT64_MAX:
            raise InvalidProfile(f"A sum of values does not fit into 64 bits: {value}.")
    return values


def _in_int64(time_ns: int) -> int:
    """A time clamped to 64 bits: an absurd time is no reason to refuse the samples."""
    return max(-_INT64_MAX, min(time_ns, _INT64_MAX))


def _mappings(profiles: Iterable[Profile]) -> tuple[Mapping, ...]:
    return tuple(dict.fromkeys(mapping for profile in profiles for mapping in profile.mappings))
