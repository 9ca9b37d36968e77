"""Messages as an OpenTelemetry SDK publishes them, made by protobuf's own encoder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto


_TEXT, _BOOL, _INT = _FIELD.TYPE_STRING, _FIELD.TYPE_BOOL, _FIELD.TYPE_INT64
_MESSAGE = _FIELD.TYPE_MESSAGE
_FIELDS = {
    "AnyValue": [("s", 1, _TEXT, ""), ("b", 2, _BOOL, ""), ("i", 3, _INT, "")],
    "KeyValue": [("key", 1, _TEXT, ""), ("value", 2, _MESSAGE, "AnyValue")],
    "Resource": [("attributes", 1, _MESSAGE, "*KeyValue")],
    "ProcessContext": [
        ("resource", 1, _MESSAGE, "Resource"),
        ("attributes", 2, _MESSAGE, "*KeyValue"),
    ],
}


@cache
def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="ctx.proto", package="ctx", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = _FIELD.LABEL_REPEATED if of.startswith("*") else _FIELD.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if of:
                added.type_name = ".ctx." + of.removeprefix("*")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("AnyValue", "KeyValue", "ProcessContext")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ctx.{name}"))
        for name in names
    }


def process_context(attributes: Mapping[str, str | int | bool]) -> bytes:
    """A ProcessContext whose resource has these attributes."""
    made = _messages()
    context = made["ProcessContext"]()
    for key, value in attributes.items():
        pair = context.resource.attributes.add(key=key)
        if isinstance(value, bool):
            pair.value.b = value
        elif isinstance(value, int):
            pair.value.i = value
        else:
            pair.value.s = value
    return bytes(context.SerializeToString())
