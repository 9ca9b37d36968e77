"""Recording options, as the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Self

from ebpfprof.goruntime.open_processes import OpenOptions
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Kind
from ebpfprof.profilers.registry import kind_named, kinds, kinds_to_choose, options_of_kinds


@dataclass(frozen=True, slots=True, init=False)
class Options:
    """How to record: which kinds, options that all kinds share, and options of single kinds.

    Without `kinds_given`, a program that is no Go program gets the kinds that it can have. `labels`
    are the keys of the pprof labels to show: None for all, () for none. `max_overhead` is the part
    of the target's CPU time that the recording may take, in percent; 0 sets no bound.

    `options[FIELD]` is the value of a kind's own option, as ProfileKind.options declares it.
    """

    kinds: tuple[Kind, ...]
    kinds_given: bool
    labels: tuple[str, ...] | None
    max_overhead: float
    allow_unknown_go: bool
    runtime: str | None
    """The file whose Go runtime is recorded; see OpenOptions."""
    by_handler: bool
    """Whether samples have the label of their handler (profile.handlers)."""
    of_kinds: Mapping[str, int] = field(hash=False)
    """The values of the kinds' own options, by Setting.name; a switch has a bool."""

    def __init__(
        self,
        kinds: Sequence[Kind] | None = None,
        *,
        kinds_given: bool = True,
        labels: tuple[str, ...] | None = None,
        max_overhead: float = 0.0,
        allow_unknown_go: bool = False,
        runtime: str | None = None,
        by_handler: bool = False,
        **of_kinds: int,
    ) -> None:
        """Without `kinds`, record the first kind that --profile offers.

        `of_kinds` are options of kinds by Setting.name; others have the defaults that the kinds
        declare. Raises TypeError for an option that no kind has.
        """
        declared = options_of_kinds()
        for name in of_kinds:
            if name not in declared:
                raise TypeError(f"There is no recording option {name!r}.")
        defaults = {name: option.default for name, (option, _) in declared.items()}
        chosen = (kinds_to_choose()[0].name,) if kinds is None else tuple(kinds)
        for name, value in (
            ("kinds", chosen),
            ("kinds_given", kinds_given),
            ("labels", labels),
            ("max_overhead", max_overhead),
            ("allow_unknown_go", allow_unknown_go),
            ("runtime", runtime),
            ("by_handler", by_handler),
            ("of_kinds", MappingProxyType({**defaults, **of_kinds})),
        ):
            object.__setattr__(self, name, value)

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 - of each option
        """A copy with some options changed, which have the names of the constructor's arguments."""
        common = {field.name: getattr(self, field.name) for field in fields(self)}
        of_kinds = common.pop("of_kinds")
        return type(self)(**{**common, **of_kinds, **changes})

    def __getitem__(self, name: str) -> int:
        """The value of a kind's own option. Raises KeyError if no kind has it."""
        return self.of_kinds[name]

    @property
    def opening(self) -> OpenOptions:
        """How the processes are read."""
        return OpenOptions(self.allow_unknown_go, self.runtime)

    @property
    def recorded_kinds(self) -> tuple[ProfileKind, ...]:
        """The chosen kinds, and the kinds that an option adds, in the order of the registry."""
        return tuple(
            kind
            for kind in kinds()
            if kind.name in self.kinds or (kind.enabled_by and self[kind.enabled_by])
        )

    @property
    def takes_any_program(self) -> bool:
        """Whether a program that is no Go program can be recorded."""
        needs_go = {kind_named(name).loader.needs_go for name in self.kinds}
        return False in needs_go and not (self.kinds_given and True in needs_go)

    @property
    def needs_bpf(self) -> bool:
        """Whether a BPF program records one of the kinds."""
        return any(kind_named(name).loader.needs_bpf for name in self.kinds)

    @property
    def needs_all_samples(self) -> bool:
        """Whether profiles are made of goroutine samples, rather than only marked where idle."""
        return self.samples_waits or any(
            kind_named(name).loader.needs_all_samples for name in self.kinds
        )

    @property
    def waiting(self) -> bool:
        """Whether it records a kind that may be recorded in windows."""
        return any(kind_named(name).loader.is_windowed for name in self.kinds)

    @property
    def is_bounded(self) -> bool:
        """Whether targets are recorded in windows where recording every event costs too much."""
        return self.max_overhead > 0 and self.waiting

    @property
    def samples_waits(self) -> bool:
        """Whether one wait in eight may be recorded, of all or of those after a time."""
        has_run_queue = any(kind.is_of_tracked_waits for kind in self.recorded_kinds)
        return self.is_bounded or bool(self["one_in_eight"]) or has_run_queue

    def sampling(self, kind: Kind) -> str:
        """Which events of a kind are recorded, in words."""
        return kind_named(kind).sampling(self.of_kinds)
