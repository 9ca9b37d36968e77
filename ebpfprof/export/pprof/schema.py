"""The messages of profile.proto.

Source of the numbers: github.com/google/pprof, proto/profile.proto.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from ebpfprof.export.proto_messages import Messages, ProtoMessage, ProtoPackage

# Strings in profile.proto are bytes here: a reader must accept names that are not UTF-8.
_MESSAGES: Final[Messages] = {
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


def message_class(name: str) -> ProtoMessage:
    """The message class of that name in perftools.profiles."""
    return _package().message_class(name)


@cache
def _package() -> ProtoPackage:
    return ProtoPackage("perftools.profiles", _MESSAGES)
