"""Messages of protocol buffers, built at run time from tables of their field numbers.

Generated code would tie us to one protobuf version, and the default pool would clash with another
file of the same messages in the process. A private pool avoids both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ProtoMessage: TypeAlias = Any
"""A message, or a class of messages, made at run time: type checkers don't know its fields."""
Messages: TypeAlias = Mapping[str, Mapping[str, tuple[int, str]]]
"""Message: field: (number, type). A leading * marks a repeated field, a leading ? one that is
written although it is 0, once it was set; other types than those of protobuf are messages of the
table."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final[dict[str, descriptor_pb2.FieldDescriptorProto.Type.ValueType]] = {
    "int64": _Field.TYPE_INT64,
    "int32": _Field.TYPE_INT32,
    "uint64": _Field.TYPE_UINT64,
    "uint32": _Field.TYPE_UINT32,
    "fixed64": _Field.TYPE_FIXED64,
    "double": _Field.TYPE_DOUBLE,
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
}


class ProtoPackage:
    """The classes of one package's messages."""

    def __init__(self, package: str, messages: Messages, *, syntax: str = "proto3") -> None:
        """`messages` must refer to no message outside of it.

        In "proto3" fields that are 0 are not written; in "proto2" those that were set to 0 are.
        """
        self._package = package
        self._pool = descriptor_pool.DescriptorPool()
        self._pool.AddSerializedFile(_file(package, messages, syntax).SerializeToString())
        self._classes: dict[str, ProtoMessage] = {}

    def message_class(self, name: str) -> ProtoMessage:
        """The class of a message of the package."""
        if name not in self._classes:
            self._classes[name] = self._made(name)
        return self._classes[name]

    def _made(self, name: str) -> ProtoMessage:
        descriptor = self._pool.FindMessageTypeByName(f"{self._package}.{name}")
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(descriptor)
        # protobuf 4.21 (Debian 12) has only the older interface, which later versions dropped.
        factory: Any = message_factory.MessageFactory(self._pool)
        return factory.GetPrototype(descriptor)


def _file(package: str, messages: Messages, syntax: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"ebpfprof/{package}.proto", package=package, syntax=syntax
    )
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            base = kind.lstrip("*?")
            field = message.field.add(name=field_name, number=number)
            is_repeated = kind.startswith("*")
            field.label = _Field.LABEL_REPEATED if is_repeated else _Field.LABEL_OPTIONAL
            if kind.startswith("?"):  # what `optional` in a .proto file means
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field_name}")
            if base in _SCALARS:
                field.type = _SCALARS[base]
            else:
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{package}.{base}"
    return file
