"""What keeps the objects of a program's heap alive: paths of references from roots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Path:
    """A place below a root: a reference by its name, and the objects to which it leads first.

    `label` is a root's name, else that of a field (".next"), "[]" for elements, "[key]" for keys of
    a map, "?" where the type does not say. `type` is that of the objects, "" if it is not known; of
    a root that of the variable. `objects` and `used` (bytes) are the place's own, without what lies
    below. References that lead back to a type above belong to the place with that type.
    """

    label: str
    type: str
    objects: int
    used: int
    below: tuple[Path, ...]
    total_objects: int
    """With what lies below."""
    total: int
    """Bytes, with what lies below."""

    @classmethod
    def of(cls, label: str, type_name: str, objects: int, used: int, below: Sequence[Path]) -> Path:
        """The place above these places, which come in order of their bytes."""
        return cls(
            label,
            type_name,
            objects,
            used,
            tuple(sorted(below, key=lambda path: -path.total)),
            objects + sum(path.total_objects for path in below),
            used + sum(path.total for path in below),
        )

    def all(self) -> Iterator[Path]:
        """The place, and all below it."""
        yield self
        for path in self.below:
            yield from path.all()


@dataclass(frozen=True, slots=True)
class RootPaths:
    """A root, and what is reached from it first: `kind` is variable, goroutine and so on.

    `goroutines` are the ids of those that it stands for.
    """

    kind: str
    paths: Path
    goroutines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LeakedGoroutines:
    """The ids of goroutines that can never continue, their waits, and what only they keep (bytes).

    The waits are numbers as DumpedGoroutine.wait.
    """

    ids: tuple[int, ...] = ()
    waits: frozenset[int] = frozenset()
    objects: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class References:
    """All roots, those with the most bytes first.

    `objects` and `used` (bytes) were reached. `changed` objects, of `changed_bytes`, hung on a
    reference that was another one when it was read again: they belong to no path, and what only
    they lead to was not read. `left_out` is how many bytes of the heap were not read: beyond the
    limits, or because spans contradict each other. `stacks_missed` counts goroutines whose stack
    could not be read. `leaked` are goroutines that can never continue.
    """

    roots: tuple[RootPaths, ...]
    objects: int
    used: int
    changed: int = 0
    changed_bytes: int = 0
    left_out: int = 0
    stacks_missed: int = 0
    leaked: LeakedGoroutines = LeakedGoroutines()


@dataclass(frozen=True, slots=True)
class Cut:
    """A reference of a path: what it leads to, and what would be freed if it were cut (bytes)."""

    label: str
    type: str
    repeated: int
    freed_objects: int
    freed: int


@dataclass(frozen=True, slots=True)
class Example:
    """One object, and how it is reached: the root first."""

    address: int
    used: int
    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why objects are alive: those that were asked for.

    `objects` and `used` (bytes) are all of them, `freed` is what would be freed without them, they
    included. `paths` are the places that have them, those with the most bytes first.
    """

    asked: str
    objects: int
    used: int
    freed_objects: int
    freed: int
    paths: tuple[tuple[tuple[str, ...], int, int], ...] = ()
    examples: tuple[Example, ...] = ()
