"""Resource attributes of OpenTelemetry, from a variable and from a protobuf message.

The messages are those of opentelemetry-proto 1.11: ProcessContext, Resource, KeyValue, AnyValue. A
process writes them, so each length is checked, and there are bounds for everything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

MAX_ATTRIBUTES: Final = 128
_MAX_TEXT: Final = 1024
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
# Numbers of fields.
_RESOURCE_OF_CONTEXT = 1
_ATTRIBUTES_OF_RESOURCE = 1
_KEY, _VALUE = 1, 2
_STRING, _BOOL, _INT, _DOUBLE = 1, 2, 3, 4


class NoAttributesError(ValueError):
    """The bytes are no such message."""


def of_variable(text: str) -> dict[str, str]:
    """The attributes in OTEL_RESOURCE_ATTRIBUTES: key=value,key=value, values percent-encoded.

    One that is malformed makes all of it count for nothing (OpenTelemetry's resource SDK).
    """
    found: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not key or len(found) >= MAX_ATTRIBUTES:
            return {}
        found[_cut(unquote(key))] = _cut(unquote(value))
    return found


def of_process_context(data: bytes) -> dict[str, str]:
    """The resource attributes of a ProcessContext, those that are a text, a number or a bool.

    Raises NoAttributesError.
    """
    found: dict[str, str] = {}
    for number, resource in _fields(data):
        if number != _RESOURCE_OF_CONTEXT or not isinstance(resource, bytes):
            continue
        for inner, pair in _fields(resource):
            if inner == _ATTRIBUTES_OF_RESOURCE and isinstance(pair, bytes):
                if len(found) >= MAX_ATTRIBUTES:
                    return found
                key, value = _pair(pair)
                if key and value:
                    found[key] = value
    return found


def _pair(data: bytes) -> tuple[str, str]:
    key = value = ""
    for number, content in _fields(data):
        if number == _KEY and isinstance(content, bytes):
            key = _text(content)
        elif number == _VALUE and isinstance(content, bytes):
            value = _any_value(content)
    return key, value


def _any_value(data: bytes) -> str:
    """The value as text; "" for lists, maps and bytes."""
    found = ""
    for number, content in _fields(data):
        if number == _STRING and isinstance(content, bytes):
            found = _text(content)
        elif number == _BOOL and isinstance(content, int):
            found = "true" if content else "false"
        elif number == _INT and isinstance(content, int):
            found = str(content - (1 << 64) if content >> 63 else content)
        elif number == _DOUBLE and isinstance(content, float):
            found = repr(content)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a message: numbers, and an int, a float (64 bits) or bytes. Raises."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise NoAttributesError("a field has the number 0")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
        elif kind == _BYTES:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise NoAttributesError("a field is longer than its message")
            yield number, data[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            if size > len(data) - at:
                raise NoAttributesError("a number is cut off")
            if kind == _FIXED64:
                yield number, struct.unpack_from("<d", data, at)[0]
            at += size
        else:
            raise NoAttributesError(f"a field has the wire type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise NoAttributesError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise NoAttributesError("a number has more than 64 bits")


def _text(data: bytes) -> str:
    return _cut(data.decode("utf-8", "backslashreplace"))


def _cut(text: str) -> str:
    return text[:_MAX_TEXT]
