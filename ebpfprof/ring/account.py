"""The account of a profile in a form for files, so that windows which are read add up as any do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from ebpfprof.errors import InvalidProfile
from ebpfprof.overhead.cost import Overhead
from ebpfprof.profile.losses import Loss, losses_together
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.registry import find_kind
from ebpfprof.ring.typed import from_plain, to_plain

_FORMATS: Final = re.compile("[{}]")
_CONTRADICTS: Final = "The file's account of its recording contradicts itself."


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """The fields of a RecordingAccount that can't be read from its profile.

    `coverage` is one of the class that the kind names (ProfileKind.coverage), as to_plain() has it.
    """

    title: str
    sampling: str
    length_ns: int
    remarks: tuple[str, ...]
    overhead: Overhead | None
    losses: tuple[Loss, ...]
    counted: Mapping[str, int]
    events: int
    idle: tuple[str, ...]
    coverage: object = None


def facts_of(profile: Profile) -> AccountFacts | None:
    """The facts of the profile's account; None if it has none that a file can hold."""
    account = profile.account
    if not isinstance(account, RecordingAccount):
        return None
    coverage = account.coverage
    if coverage is not None and type(coverage) is not _coverage_class(profile.kind):
        return None
    return AccountFacts(
        account.title,
        account.sampling,
        account.length_ns,
        account.remarks,
        account.overhead,
        _of_any_target(account.losses),
        dict(account.counted),
        account.events,
        account.idle,
        to_plain(coverage),
    )


def is_estimate(profile: Profile) -> bool:
    """Whether the account says that sums are scaled."""
    account = profile.account
    coverage = account.coverage if isinstance(account, RecordingAccount) else None
    return coverage is not None and coverage.is_scaled


def with_account(profile: Profile, facts: AccountFacts) -> Profile:
    """The profile with the account of these facts; its samples have their variances already.

    The profile keeps its comments. Raises InvalidProfile.
    """
    kind = find_kind(profile.kind)
    if kind is None:
        return profile
    coverage = None
    if facts.coverage is not None:
        wanted = _coverage_class(profile.kind)
        if wanted is None:
            raise InvalidProfile(f"A {profile.kind} profile is not an estimate.")
        coverage = from_plain(wanted, facts.coverage)
    shown = kind.shown[1]
    account = RecordingAccount(
        profile.kind,
        facts.title,
        facts.sampling,
        facts.length_ns,
        facts.remarks,
        facts.overhead,
        losses=facts.losses,
        coverage=coverage,
        spread={
            (sample.locations, sample.labels): (sample.values[shown], sample.variance)
            for sample in profile.samples
            if sample.variance
        },
        counted=facts.counted,
        events=facts.events,
        idle=facts.idle,
    )
    if any(_FORMATS.search(sentence.replace("{}", "", 1)) for sentence in facts.counted):
        raise InvalidProfile(_CONTRADICTS)
    try:
        account.comments()
    except (ValueError, ArithmeticError) as error:  # such as the root of a negative variance
        raise InvalidProfile(_CONTRADICTS) from error
    return replace(profile, account=account)


def _of_any_target(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The losses without the numbers of targets, which hold for one run of ebpfprof only."""
    return losses_together(replace(loss, target=None) for loss in losses)


def _coverage_class(kind: str) -> Any:  # noqa: ANN401 - a class that the kind names
    listed = find_kind(kind)
    if listed is None or not listed.coverage:
        return None
    module, _, name = listed.coverage.partition(":")
    return getattr(import_module(module), name)
