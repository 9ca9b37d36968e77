"""The messages of profile.proto, built at run time from a table of its field numbers.

Generated code would tie us to one protobuf version, and the default pool would clash with
another profile.proto in the process. A private pool avoids both.
Source of the numbers: github.com/google/pprof, proto/profile.proto.
"""

from functools import cache
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ProtoMessage: TypeAlias = Any
"""A message, or a class of messages, made at run time: type checkers don't know its fields."""

_PACKAGE = "perftools.profiles"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: dict[str, "descriptor_pb2.FieldDescriptorProto.Type.ValueType"] = {
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "bool": _Field.TYPE_BOOL,
    # Strings in profile.proto, but a reader must accept names that are not UTF-8.
    "bytes": _Field.TYPE_BYTES,
}

# message: field: (number, type); a leading * marks a repeated field.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Profile": {
        "sample_type": (1, "*ValueType"),
        "sample": (2, "*Sample"),
        "mapping": (3, "*Mapping"),
        "location": (4, "*Location"),
        "function": (5, "*Function"),
        "string_table": (6, "*bytes"),
        "drop_frames": (7, "int64"),
        "keep_frames": (8, "int64"),
        "time_nanos": (9, "int64"),
        "duration_nanos": (10, "int64"),
        "period_type": (11, "ValueType"),
        "period": (12, "int64"),
        "comment": (13, "*int64"),
        "default_sample_type": (14, "int64"),
        "doc_url": (15, "int64"),
    },
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Sample": {"location_id": (1, "*uint64"), "value": (2, "*int64"), "label": (3, "*Label")},
    "Label": {
        "key": (1, "int64"),
        "str": (2, "int64"),
        "num": (3, "int64"),
        "num_unit": (4, "int64"),
    },
    "Mapping": {
        "id": (1, "uint64"),
        "memory_start": (2, "uint64"),
        "memory_limit": (3, "uint64"),
        "file_offset": (4, "uint64"),
        "filename": (5, "int64"),
        "build_id": (6, "int64"),
        "has_functions": (7, "bool"),
        "has_filenames": (8, "bool"),
        "has_line_numbers": (9, "bool"),
        "has_inline_frames": (10, "bool"),
    },
    "Location": {
        "id": (1, "uint64"),
        "mapping_id": (2, "uint64"),
        "address": (3, "uint64"),
        "line": (4, "*Line"),
        "is_folded": (5, "bool"),
    },
    "Line": {"function_id": (1, "uint64"), "line": (2, "int64"), "column": (3, "int64")},
    "Function": {
        "id": (1, "uint64"),
        "name": (2, "int64"),
        "system_name": (3, "int64"),
        "filename": (4, "int64"),
        "start_line": (5, "int64"),
    },
}


def profile_class() -> ProtoMessage:
    """The message class of perftools.profiles.Profile."""
    return message_class("Profile")


@cache
def message_class(name: str) -> ProtoMessage:
    """The message class of that name in perftools.profiles."""
    pool = _pool()
    descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    # protobuf 4.21 (Debian 12) has only the older interface, which later versions dropped.
    factory: Any = message_factory.MessageFactory(pool)
    return factory.GetPrototype(descriptor)


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="ebpfprof/profile.proto", package=_PACKAGE, syntax="proto3"
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            base = kind.removeprefix("*")
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if base != kind else _Field.LABEL_OPTIONAL
            if base in _SCALARS:
                field.type = _SCALARS[base]
            else:
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{base}"
    return file
