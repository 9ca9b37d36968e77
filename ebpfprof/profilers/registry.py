"""The registry of profile kinds; each kind is declared in its profiler's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Sample, ValueType
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.goroutines.kinds import GOROUTINE, THREADCREATE, THREADS, WALL
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, OPEN, RUN_QUEUE, WAKERS
from ebpfprof.settings.setting import Setting

_kinds: dict[str, ProfileKind] = {}


def register(kind: ProfileKind) -> None:
    """Add a kind. Raises ValueError if another kind has its name, key or one of its options."""
    if kind.name in _kinds or (kind.key and kind.key in {kind.key for kind in kinds()}):
        raise ValueError(f"There is a profile kind {kind.name!r} or key {kind.key!r} already.")
    for option in kind.options:
        if option.name in options_of_kinds():
            raise ValueError(f"There is a recording option {option.name!r} already.")
    _kinds[kind.name] = kind


@contextmanager
def registered(kind: ProfileKind) -> Iterator[ProfileKind]:
    """Add a kind within the context, for tests. Raises what register() raises."""
    register(kind)
    try:
        yield kind
    finally:
        del _kinds[kind.name]


def kinds() -> tuple[ProfileKind, ...]:
    """All kinds, in the order in which we show them."""
    return tuple(_kinds.values())


def kinds_to_choose() -> tuple[ProfileKind, ...]:
    """The kinds that --profile offers."""
    return tuple(kind for kind in kinds() if kind.is_chosen_by_name)


def kinds_of_any_program() -> tuple[ProfileKind, ...]:
    """The kinds that --profile offers and that need no Go program."""
    return tuple(kind for kind in kinds_to_choose() if not kind.loader.needs_go)


def kind_named(name: str) -> ProfileKind:
    """The kind of that name. Raises KeyError."""
    return _kinds[name]


def find_kind(name: str) -> ProfileKind | None:
    """The kind of that name; None if no kind has it, as for a file of another tool."""
    return _kinds.get(name)


def kind_of(
    sample_types: Sequence[ValueType], samples: Sequence[Sample], default_sample_type: str = ""
) -> ProfileKind | None:
    """The kind whose profiles have these sample types and samples; None if none fits.

    Of kinds with the same types, one with that default type comes first.
    """
    types = [value_type.type for value_type in sample_types]
    fitting = [k for k in kinds() if [t.type for t in k.sample_types] == types]
    fitting.sort(key=lambda kind: kind.default_sample_type != default_sample_type)
    by_samples = [kind for kind in fitting if kind.is_of and samples and kind.is_of(samples)]
    rest = [kind for kind in fitting if not kind.is_of]
    return next(iter((*by_samples, *rest)), None)


def kind_with_option(name: str) -> ProfileKind:
    """The kind that declares the option with this Setting.name. Raises KeyError."""
    return options_of_kinds()[name][1]


def options_of_kinds() -> dict[str, tuple[Setting, ProfileKind]]:
    """The recording options of all kinds, by field, each with its kind."""
    return {option.name: (option, kind) for kind in kinds() for option in kind.options}


for _kind in (
    *(
        BLOCK,
        MUTEX,
        WAKERS,
        RUN_QUEUE,
        CPU,
        WALL,
        GOROUTINE,
        HEAP,
        ALLOCS,
        THREADS,
        THREADCREATE,
        OPEN,
    ),
):
    register(_kind)
