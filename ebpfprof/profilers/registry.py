"""The kinds of profiles that there are, each declared in its own folder."""

from __future__ import annotations

from collections.abc import Sequence

from ebpfprof.profile.kind import Option, ProfileKind
from ebpfprof.profile.model import Sample, ValueType
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, OPEN

_kinds: dict[str, ProfileKind] = {}


def register(kind: ProfileKind) -> None:
    """Add a kind. Raises ValueError if there is one of that name or with that key."""
    if kind.name in _kinds or (kind.key and kind.key in {each.key for each in _kinds.values()}):
        raise ValueError(f"There is a profile kind {kind.name!r} or key {kind.key!r} already.")
    _kinds[kind.name] = kind


def kinds() -> tuple[ProfileKind, ...]:
    """All kinds, in the order in which they are shown."""
    return tuple(_kinds.values())


def kinds_to_choose() -> tuple[ProfileKind, ...]:
    """Those that --profile offers."""
    return tuple(kind for kind in kinds() if kind.is_chosen_by_name)


def kind_named(name: str) -> ProfileKind:
    """The kind of that name. Raises KeyError."""
    return _kinds[name]


def find_kind(name: str) -> ProfileKind | None:
    """The kind of that name; None for a profile of something else, read from a file."""
    return _kinds.get(name)


def kind_of(sample_types: Sequence[ValueType], samples: Sequence[Sample]) -> ProfileKind | None:
    """The kind of a profile with these types of values and these samples, if it is one of ours."""
    types = [each.type for each in sample_types]
    fitting = [k for k in kinds() if [each.type for each in k.sample_types] == types]
    told = [kind for kind in fitting if kind.is_of and samples and kind.is_of(samples)]
    rest = [kind for kind in fitting if not kind.is_of]
    return next(iter((*told, *rest)), None)


def options_of_kinds() -> dict[str, tuple[Option, ProfileKind]]:
    """The recording options of all kinds, by field, each with its kind."""
    return {option.field: (option, kind) for kind in kinds() for option in kind.options}


for _kind in (BLOCK, MUTEX, CPU, OPEN):
    register(_kind)
