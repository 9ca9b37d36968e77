"""The types of objects, by the pointers that lead to them: a variable's, a field's, an interface's.

Small objects have no type in memory. But a pointer's static type says what it leads to, and an
interface has the type of its value. Maps and channels lead to structs of the runtime
(runtime/map.go up to Go 1.23, internal/runtime/maps from 1.24 on, runtime/chan.go), which are parts
of the map or channel here.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from symbolizer.go.type_descriptors import (
    ARRAY,
    CHAN,
    FUNC,
    INTERFACE,
    MAP,
    POINTER,
    SLICE,
    STRING,
    STRUCT,
    UNSAFE_POINTER,
)

if TYPE_CHECKING:
    from symbolizer.go.runtime_layout import RuntimeLayout
    from symbolizer.go.type_descriptors import TypeDescriptors
    from symbolizer.locks.variable_types import VariableTypes

_WORD: Final = 8
LARGEST_WITHOUT_HEADER: Final = 512
"""Bytes. Behind the type that the runtime records before larger objects (runtime/mbitmap.go)."""
LARGEST_SMALL: Final = 32768
"""Bytes. A larger object has a span of its own, which records its type (runtime/sizeclasses.go)."""
_PAGE: Final = 8192
_TINY: Final = 16
_MAX_NESTED: Final = 16
_MAX_TYPES: Final = 1 << 18
_DIRECT: Final = frozenset((POINTER, MAP, CHAN, FUNC, UNSAFE_POINTER))
# Offsets in internal/runtime/maps.Map and .table (Go 1.24 to 1.27), and in runtime.hmap and
# runtime.mapextra (Go 1.19 to 1.23).
_DIRECTORY_AT: Final = 16
_GROUPS_AT: Final = 16
_BUCKETS_AT: Final = (16, 24)
_EXTRA_AT: Final = 40
_ITAB_TYPE_AT: Final = 8


@dataclass(frozen=True, slots=True)
class ShapeField:
    """A field of a struct: its offset in bytes, and its type."""

    name: str
    offset: int
    type: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What a type consists of; types are numbers of Shapes, 0 for none."""

    name: str
    size: int
    kind: int
    has_pointers: bool = True
    fields: tuple[ShapeField, ...] = ()
    element: int = 0
    target: int = 0
    group: int = 0
    has_methods: bool = False


class Shapes:
    """The types of a program: from descriptors, and from DWARF where there is no descriptor.

    A positive number is the runtime address of a descriptor, a negative one an offset in DWARF.
    """

    def __init__(self, descriptors: TypeDescriptors, variables: VariableTypes, start: int) -> None:
        """`start` is the runtime address of moduledata.types."""
        self._descriptors, self._variables, self._start = descriptors, variables, start
        self._known: dict[int, Shape | None] = {}

    def at(self, number: int) -> Shape | None:
        """The type; None if there is none that makes sense."""
        if number not in self._known:
            if len(self._known) >= _MAX_TYPES:
                return None
            self._known[number] = self._of_dwarf(-number) if number < 0 else self._of(number)
        return self._known[number]

    def of_variable(self, name: str, address: int) -> int:
        """The type of the package variable at an address as linked; 0 if it is not known."""
        offset = self._variables.type_of(name, address)
        return self._number(offset) if offset else 0

    def _number(self, offset: int) -> int:
        place = self._variables.runtime_type(offset)
        return (
            self._start + place if place and self._descriptors.at(self._start + place) else -offset
        )

    def _of(self, address: int) -> Shape | None:
        known = self._descriptors.at(address)
        if known is None:
            return None
        return Shape(
            self._descriptors.text(address),
            known.size,
            known.kind,
            known.has_pointers,
            tuple(ShapeField(field.name, field.offset, field.type) for field in known.fields),
            known.element,
            known.target,
            known.group,
            known.has_methods,
        )

    def _of_dwarf(self, offset: int) -> Shape | None:
        known = self._variables.at(offset)
        if known is None:
            return None
        return Shape(
            known.name,
            known.size,
            known.kind,
            True,
            tuple(
                ShapeField(name, place, self._number(kind)) for name, place, kind in known.fields
            ),
            self._number(known.element) if known.element else 0,
            self._number(known.target) if known.target else 0,
            0,
            known.has_methods,
        )


class Form(IntEnum):
    """What an object consists of, beside values of its type."""

    UNKNOWN = 0
    VALUE = 1
    VALUES = 2
    """Several, side by side: what a slice leads to, or a table of a map."""
    AROUND = 3
    """A pointer of this type leads into it; it has other things, too."""
    TEXT = 4
    MAP = 5
    MAP_DIRECTORY = 6
    MAP_TABLE = 7
    MAP_GROUPS = 8
    CHANNEL = 9
    CLOSURE = 10


PARTS: Final = frozenset(
    (Form.MAP, Form.MAP_DIRECTORY, Form.MAP_TABLE, Form.MAP_GROUPS, Form.CHANNEL, Form.CLOSURE)
)
"""What a pointer says of these is more than the type that the heap may record."""


class Ask(IntEnum):
    """What must be read to know where a pointer leads."""

    NOTHING = 0
    TYPE_BEFORE = 1
    """The word before it is a type."""
    ITAB_BEFORE = 2
    """The word before it is an itab."""
    TABLES_BEHIND = 3
    """The word behind it is the number of a map's tables, 0 if there is but one group."""
    FUNCTION = 4
    """The first word that it leads to is a function."""


class ObjectType(NamedTuple):
    """The type of an object. Of a closure, `name` is its function."""

    form: Form
    shape: int = 0
    name: str = ""


class ReferenceStep(NamedTuple):
    """A reference: its name in the object that has it, and what it leads to.

    With `is_part`, that is a part of the same value, such as the memory of a map.
    """

    label: str
    type: int
    is_part: bool = False
    ask: Ask = Ask.NOTHING
    is_reference: bool = True
    """Or a number that looks like an address: the type has no pointer there."""


UNKNOWN: Final = 0
NOWHERE: Final = ReferenceStep("?", UNKNOWN)
_NUMBER: Final = ReferenceStep("", UNKNOWN, is_reference=False)


class ObjectTypes:
    """Types of objects as small numbers, 0 for unknown."""

    def __init__(self, shapes: Shapes, layout: RuntimeLayout) -> None:
        self.shapes = shapes
        self._classes = layout.size_classes
        self._has_headers = layout.has("mspan", "largeType")
        self._buffer_at = layout.offset("hchan", "buf")
        self._all = [ObjectType(Form.UNKNOWN)]
        self._numbers = {self._all[0]: UNKNOWN}
        self._periods: dict[int, int] = {}
        self._steps: dict[tuple[int, int], ReferenceStep] = {}
        self._fits: dict[tuple[int, int, bool], int] = {}

    def number(self, form: Form, shape: int = 0, name: str = "") -> int:
        """The number of a type."""
        known = ObjectType(form, shape, name)
        if known not in self._numbers:
            if len(self._all) >= _MAX_TYPES:
                return UNKNOWN
            self._numbers[known] = len(self._all)
            self._all.append(known)
        return self._numbers[known]

    def __getitem__(self, number: int) -> ObjectType:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def name(self, number: int) -> str:
        """The type as Go code writes it; "" if it is unknown."""
        form, shape, name = self._all[number]
        if form is Form.TEXT:
            return "string"
        if form is Form.CLOSURE:
            return f"func {name}" if name else "func"
        known = self.shapes.at(shape)
        text = known.name if known else ""
        match form:
            case Form.VALUES:
                return f"[]{text}" if text else ""
            case Form.AROUND:
                return f"object with {text}" if text else ""
        return text

    def period(self, number: int) -> int:
        """After how many bytes the references of an object repeat; 0 if they don't."""
        if number not in self._periods:
            self._periods[number] = self._period(*self._all[number][:2])
        return self._periods[number]

    def _period(self, form: Form, shape: int) -> int:
        if form in (Form.VALUES, Form.MAP_GROUPS, Form.VALUE):
            known = self.shapes.at(shape)
            return known.size if known else 0
        return _WORD if form is Form.MAP_DIRECTORY else 0

    def variable(self, shape: int) -> int:
        """The type of a variable."""
        return self.number(Form.VALUE, shape) if self.shapes.at(shape) else UNKNOWN

    def of_header(self, shape: int, slot: int) -> int:
        """The type of an object whose type the heap records."""
        known = self.shapes.at(shape)
        if known is None or not known.size:
            return UNKNOWN
        return self.number(Form.VALUE if self._slot(known) == slot else Form.VALUES, shape)

    def fitting(self, number: int, slot: int, *, is_first: bool) -> int:
        """The type of an object in a slot of that size (bytes), as a pointer's type says.

        `is_first`: the pointer leads to the slot's first byte. A pointer may also lead into an
        object of another type.
        """
        key = number, slot, is_first
        if key not in self._fits:
            self._fits[key] = self._fitting(number, slot, is_first=is_first)
        return self._fits[key]

    def _fitting(self, number: int, slot: int, *, is_first: bool) -> int:
        form, shape, _ = self._all[number]
        known = self.shapes.at(shape)
        if form not in (Form.VALUE, Form.VALUES) or known is None:
            return number
        if form is Form.VALUES and known.size <= slot:
            return number
        if not known.size:
            return UNKNOWN
        is_tiny = not known.has_pointers and known.size < _TINY == slot
        if is_tiny or (is_first and self._slot(known) == slot):
            return number  # several tiny objects share a slot
        return self.number(Form.AROUND, shape)

    def _slot(self, shape: Shape) -> int:
        size = shape.size
        if self._has_headers and shape.has_pointers and size > LARGEST_WITHOUT_HEADER:
            if size <= LARGEST_SMALL - _WORD:
                size += _WORD
            else:
                return -(-size // _PAGE) * _PAGE
        if size > LARGEST_SMALL:
            return -(-size // _PAGE) * _PAGE
        return self._classes[min(bisect_left(self._classes, size), len(self._classes) - 1)]

    def step(self, number: int, offset: int) -> ReferenceStep:
        """The reference at an offset (bytes) in an object, less than its period if it has one."""
        key = number, offset
        if key not in self._steps:
            if len(self._steps) >= _MAX_TYPES:
                return NOWHERE
            self._steps[key] = self._step(*self._all[number], offset)
        return self._steps[key]

    def _step(self, form: Form, shape: int, name: str, offset: int) -> ReferenceStep:
        match form:
            case Form.VALUE:
                return self._inside(shape, offset, "")
            case Form.VALUES:
                return self._inside(shape, offset, "[]")
            case Form.MAP:
                return self._in_map(shape, offset)
            case Form.MAP_DIRECTORY:
                return ReferenceStep("", self.number(Form.MAP_TABLE, shape), is_part=True)
            case Form.MAP_TABLE if offset == _GROUPS_AT:
                return ReferenceStep("", self._groups(shape), is_part=True)
            case Form.MAP_GROUPS:
                return self._in_group(shape, offset)
            case Form.CHANNEL:
                known = self.shapes.at(shape)
                if offset == self._buffer_at and known and known.target:
                    return ReferenceStep("", self.number(Form.VALUES, known.target), is_part=True)
                return ReferenceStep(".waiting", UNKNOWN)
            case Form.CLOSURE:
                return ReferenceStep("captured", UNKNOWN)
        return NOWHERE

    def _groups(self, shape: int) -> int:
        known = self.shapes.at(shape)
        return self.number(Form.MAP_GROUPS, known.group) if known and known.group else UNKNOWN

    def _in_map(self, shape: int, offset: int) -> ReferenceStep:
        known = self.shapes.at(shape)
        group = self.shapes.at(known.group) if known else None
        if group is None or not group.fields:
            return ReferenceStep("[]", UNKNOWN)
        if group.fields[0].name == "ctrl":
            if offset == _DIRECTORY_AT:
                # `shape` is the map's: what the number of tables says then chooses.
                directory = self.number(Form.MAP_DIRECTORY, shape)
                return ReferenceStep("", directory, is_part=True, ask=Ask.TABLES_BEHIND)
        elif offset in _BUCKETS_AT:
            return ReferenceStep("", self._groups(shape), is_part=True)
        elif offset == _EXTRA_AT:
            return ReferenceStep("", UNKNOWN, is_part=True)
        return ReferenceStep("[]", UNKNOWN)

    def only_group(self, directory: int) -> int:
        """The type of what a map has instead of this directory, if it has but one group."""
        return self._groups(self._all[directory].shape)

    def _in_group(self, shape: int, offset: int) -> ReferenceStep:
        known = self.shapes.at(shape)
        if known is None or not known.size:
            return NOWHERE
        step = self._inside(shape, offset % known.size, "")
        for begin, label in _GROUP_LABELS:
            if step.label.startswith(begin):
                return step._replace(label=label + step.label.removeprefix(begin))
        # The overflow of a bucket.
        return ReferenceStep("", self.number(Form.MAP_GROUPS, shape), is_part=True)

    def _inside(self, shape: int, offset: int, label: str) -> ReferenceStep:
        for _ in range(_MAX_NESTED):
            known = self.shapes.at(shape)
            if known is None or not known.size:
                break
            offset %= known.size
            if known.kind == STRUCT:
                field = next(
                    (
                        field
                        for field in reversed(known.fields)
                        if field.offset <= offset < field.offset + self._size(field.type)
                    ),
                    None,
                )
                if field is None:
                    break
                label, shape, offset = f"{label}.{field.name}", field.type, offset - field.offset
            elif known.kind == ARRAY:
                label, shape = f"{label}[]", known.element
            else:
                return self._leaf(known, shape, offset, label)
        return ReferenceStep(f"{label}?", UNKNOWN)

    def _size(self, shape: int) -> int:
        known = self.shapes.at(shape)
        return known.size if known else 0

    def _leaf(self, known: Shape, shape: int, offset: int, label: str) -> ReferenceStep:
        match known.kind:
            case kind if kind == INTERFACE and offset == _WORD:
                ask = Ask.ITAB_BEFORE if known.has_methods else Ask.TYPE_BEFORE
                return ReferenceStep(label, UNKNOWN, ask=ask)
            case kind if kind == INTERFACE or (kind in (STRING, SLICE) and offset):
                return _NUMBER
            case kind if kind == STRING:
                return ReferenceStep(label, self.number(Form.TEXT))
            case kind if kind == SLICE:
                return ReferenceStep(label, self.number(Form.VALUES, known.target))
        return self._behind(known, shape, label)

    def _behind(self, known: Shape, shape: int, label: str) -> ReferenceStep:
        """Where a pointer, a map, a channel or a function leads."""
        match known.kind:
            case kind if kind == POINTER:
                return ReferenceStep(label, self.number(Form.VALUE, known.target))
            case kind if kind == MAP:
                return ReferenceStep(label, self.number(Form.MAP, shape))
            case kind if kind == CHAN:
                return ReferenceStep(label, self.number(Form.CHANNEL, shape))
            case kind if kind == FUNC:
                return ReferenceStep(label, self.number(Form.CLOSURE), ask=Ask.FUNCTION)
            case kind if kind == UNSAFE_POINTER:
                return ReferenceStep(label, UNKNOWN)
        return _NUMBER

    def of_dynamic(self, shape: int) -> tuple[int, bool]:
        """Where an interface with a value of this type leads; and whether to a function."""
        known = self.shapes.at(shape)
        for _ in range(_MAX_NESTED):
            if known is None:
                return UNKNOWN, False
            # A struct or an array of one pointer is kept as that pointer.
            if known.kind == STRUCT and known.size == _WORD and known.has_pointers:
                inner = next((f.type for f in known.fields if self._size(f.type)), 0)
            elif known.kind == ARRAY and known.size == _WORD and known.has_pointers:
                inner = known.element
            else:
                break
            shape, known = inner, self.shapes.at(inner)
        if known is None:
            return UNKNOWN, False
        if known.kind in _DIRECT:
            step = self._behind(known, shape, "")
            return step.type, step.ask is Ask.FUNCTION
        return self.number(Form.VALUE, shape), False


_GROUP_LABELS: Final = (
    (".slots[].key", "[key]"),
    (".slots[].elem", "[]"),
    (".keys[]", "[key]"),
    (".elems[]", "[]"),
)
