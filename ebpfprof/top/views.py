"""The tables of `ebpfprof top`: one for each profile kind that has a key, and one of locks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.registry import kind_with_option, kinds

_BY_LOCK: Final = "by_lock"
_OWN_KEYS: Final = frozenset("dcmnrilpwThq/? ")
"""Those that do something in each table; see top.state."""


@dataclass(frozen=True, slots=True)
class View:
    """One table: a row for each place that called an operation, each function, or each lock.

    `kind` is the profile that it is made of. `key` switches to it. `title` and `summary` say what
    it shows, `nothing` that there is nothing to show, `missing` why it can't be shown and what to
    do. `place` is the heading of the column of names, from the longest wording to the shortest. A
    view with an `option` (Setting.name) is there only where that option is set.
    """

    name: str
    kind: ProfileKind
    key: str
    title: str
    summary: str
    nothing: str
    missing: str
    rows: Literal["operations", "functions", "locks"]
    place: tuple[str, ...]
    option: str = ""


def views() -> tuple[View, ...]:
    """All views. Raises ValueError if a kind has a key that does something else in `top`."""
    return (*(_of_kind(kind) for kind in kinds() if kind.key), _of_locks())


def view_named(name: str) -> View:
    """The view of that name: a kind's, or "locks". Raises KeyError."""
    return {view.name: view for view in views()}[name]


def view_with_key(key: str) -> View | None:
    """The view that a key switches to, if there is one."""
    return next((view for view in views() if view.key == key), None)


def views_of(recorded: Collection[str], options: Options) -> list[View]:
    """The views of the kinds that are recorded, by name."""
    return [
        view
        for view in views()
        if view.kind.name in recorded and (not view.option or options[view.option])
    ]


def _of_kind(kind: ProfileKind) -> View:
    if kind.key in _OWN_KEYS:
        raise ValueError(f"Key {kind.key!r} of profile kind {kind.name!r} is one of top itself.")
    return View(
        name=kind.name,
        kind=kind,
        key=kind.key,
        title=kind.title,
        summary=kind.summary,
        nothing=_sentence(kind.nothing),
        missing=f"The {kind.title} profile is not recorded: start again with --profile "
        f"{kind.name}.",
        rows=kind.table.rows,
        place=kind.table.place,
    )


def _of_locks() -> View:
    """Locks belong to the kind that can distinguish them."""
    kind = kind_with_option(_BY_LOCK)
    return View(
        name="locks",
        kind=kind,
        key="l",
        title="locks",
        summary="which locks goroutines waited for (with --by-lock)",
        nothing=_sentence(kind.nothing),
        missing="Locks are not distinguished: start again with --by-lock.",
        rows="locks",
        place=("Lock",),
        option=_BY_LOCK,
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
