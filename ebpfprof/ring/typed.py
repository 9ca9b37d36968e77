"""Dataclasses as JSON and back, by the types of their fields: nothing else comes out of a file."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from ebpfprof.errors import InvalidProfile


def to_plain(value: Any) -> Any:  # noqa: ANN401 - JSON has any type
    """Of a dataclass: dicts, lists, texts and numbers, as the json module takes them."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(element) for key, element in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: Any, value: object) -> Any:  # noqa: ANN401 - of the type `kind`
    """The value of type `kind` that to_plain() made `value` of.

    A type is a dataclass, bool, int, float, str, a union, a tuple, or a mapping from str. Fields
    that the dataclass does not have are ignored. Raises InvalidProfile.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is object:
        return value
    if kind is float and type(value) in (int, float):
        return _float(value)
    if kind in (bool, int, str, types.NoneType) and type(value) is kind:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value)
    if origin is tuple and isinstance(value, list):
        return _tuple(arguments, value)
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {from_plain(str, key): from_plain(arguments[1], value[key]) for key in value}
    if is_dataclass(kind) and isinstance(value, dict):
        return _dataclass(kind, value)
    raise _wrong()


def _float(value: Any) -> float:  # noqa: ANN401 - an int or a float
    try:
        number = float(value)
    except OverflowError as error:
        raise _wrong() from error
    if math.isnan(number):
        raise _wrong()
    return number


def _one_of(kinds: tuple[Any, ...], value: object) -> Any:  # noqa: ANN401 - of one of the types
    for kind in kinds:
        try:
            return from_plain(kind, value)
        except InvalidProfile:
            continue
    raise _wrong()


def _tuple(kinds: tuple[Any, ...], values: list[object]) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(from_plain(kinds[0], value) for value in values)
    if len(kinds) != len(values):
        raise _wrong()
    return tuple(from_plain(kind, element) for kind, element in zip(kinds, values, strict=True))


def _dataclass(kind: Any, value: dict[str, object]) -> Any:  # noqa: ANN401 - of the type `kind`
    read = {}
    hints = _hints(kind)
    for field in fields(kind):
        if field.name in value:
            read[field.name] = from_plain(hints[field.name], value[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _wrong()
    return kind(**read)


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    return get_type_hints(kind)


def _wrong() -> InvalidProfile:
    return InvalidProfile("The file's description of itself is not one that ebpfprof writes.")
