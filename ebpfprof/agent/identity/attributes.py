"""Resource attributes of OpenTelemetry, from a variable and from a protobuf message.

The messages are those of opentelemetry-proto 1.11: ProcessContext, Resource, KeyValue, AnyValue. A
process writes them, so they are parsed here, with a limit for everything: the protobuf package
would first build all of a hostile message.
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
    """The bytes are not such a message."""


def of_variable(text: str) -> dict[str, str]:
    """The attributes in OTEL_RESOURCE_ATTRIBUTES: key=value,key=value, values percent-encoded.

    If one pair is malformed, all are ignored, as in OpenTelemetry's resource SDK.
    """
    attributes: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key or len(attributes) >= MAX_ATTRIBUTES:
            return {}
        attributes[_cut(unquote(key))] = _cut(unquote(value))
    return attributes


def of_process_context(data: bytes) -> dict[str, str]:
    """The resource attributes of a ProcessContext that are texts, numbers or bools.

    Raises NoAttributesError.
    """
    attributes: dict[str, str] = {}
    for number, resource in _fields(data):
        if number != _RESOURCE_OF_CONTEXT or not isinstance(resource, bytes):
            continue
        for inner, pair in _fields(resource):
            if inner == _ATTRIBUTES_OF_RESOURCE and isinstance(pair, bytes):
                if len(attributes) >= MAX_ATTRIBUTES:
                    return attributes
                key, value = _pair(pair)
                if key and value:
                    attributes[key] = value
    return attributes


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
    text = ""
    for number, content in _fields(data):
        if number == _STRING and isinstance(content, bytes):
            text = _text(content)
        elif number == _BOOL and isinstance(content, int):
            text = "true" if content else "false"
        elif number == _INT and isinstance(content, int):
            text = str(content - (1 << 64) if content >> 63 else content)
        elif number == _DOUBLE and isinstance(content, float):
            text = repr(content)
    return text


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """The fields of a message: numbers, and an int, a float (64 bits) or bytes. Raises."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise NoAttributesError("a field has the number 0")
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif kind == _BYTES:
            size, position = _varint(data, position)
            if size > len(data) - position:
                raise NoAttributesError("a field is longer than its message")
            yield number, data[position : position + size]
            position += size
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
            if size > len(data) - position:
                raise NoAttributesError("a number is cut off")
            if kind == _FIXED64:
                yield number, struct.unpack_from("<d", data, position)[0]
            position += size
        else:
            raise NoAttributesError(f"a field has the wire type {kind}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise NoAttributesError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
    raise NoAttributesError("a number has more than 64 bits")


def _text(data: bytes) -> str:
    return _cut(data.decode("utf-8", "backslashreplace"))


def _cut(text: str) -> str:
    return text[:_MAX_TEXT]
