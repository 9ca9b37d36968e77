"""Writes OTLP profiles: the request that a receiver of OpenTelemetry takes.

In OTLP a profile has one sample type, so ours with two becomes two, which share all tables. The
first entry of each table means "none".
"""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.export.otlp.schema import message_class
from ebpfprof.export.pprof.writer import in_order
from ebpfprof.profile.length_labels import by_length

if TYPE_CHECKING:
    from ebpfprof.export.proto_messages import ProtoMessage
    from ebpfprof.profile.model import Frame, Label, Location, Profile, ValueType
    from ebpfprof.profile.model import Mapping as MemoryMapping

_BUILD_ID: Final = "process.executable.build_id.gnu"
_FRAME_TYPE: Final = "profile.frame.type"
_KERNEL: Final = "[kernel"
_COMMENT: Final = "pprof.profile.comment"
_IDS: Final = uuid.UUID("6f2c5f50-6d0b-4c47-9c0e-0f6a3f8f5b1e")
"""The namespace of our profiles' ids (RFC 9562, version 5)."""


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """Where profiles come from: attributes of the resource, and the scope, by name and version.

    `id` is a text that no other profile of the world has: a profile that is sent again has the same
    id.
    """

    attributes: Mapping[str, str]
    scope: str
    version: str
    id: str


def encode(profile: Profile, source: ProfileSource) -> bytes:
    """An ExportProfilesServiceRequest with a profile for each sample type.

    The comments are an attribute of each profile. With the lengths of waits as labels, each of
    them is an attribute of its samples, as pprof files have it.
    """
    return _Encoder().encode(by_length(profile) if profile.has_length_labels else profile, source)


class _Encoder:
    """The tables of a request while it is written."""

    def __init__(self) -> None:
        self._request = message_class("ExportProfilesServiceRequest")()
        self._tables = self._request.dictionary
        self._strings: dict[str, int] = {"": 0}
        self._numbers: dict[Hashable, int] = {}
        for table in ("mapping", "location", "function", "link", "attribute", "stack"):
            getattr(self._tables, f"{table}_table").add()

    def encode(self, profile: Profile, source: ProfileSource) -> bytes:
        resource = self._request.resource_profiles.add()
        for key, value in source.attributes.items():
            if value:
                attribute = resource.resource.attributes.add(key=_utf8(key))
                attribute.value.string_value = _utf8(value)
        scope = resource.scope_profiles.add()
        scope.scope.name, scope.scope.version = _utf8(source.scope), _utf8(source.version)
        samples = [
            (
                self._stack(sample.locations),
                list(dict.fromkeys(map(self._label, sample.labels))),
                sample.values,
            )
            for sample in in_order(profile.samples)
        ]
        comments = self._comments(profile.comments)
        for number, value_type in enumerate(profile.sample_types):
            message = scope.profiles.add(
                time_unix_nano=profile.time_ns,
                duration_nano=profile.duration_ns,
                period=profile.period,
                profile_id=uuid.uuid5(_IDS, f"{source.id} {value_type.type}").bytes,
                attribute_indices=comments,
            )
            self._fill(message.sample_type, value_type)
            self._fill(message.period_type, profile.period_type)
            for stack, labels, values in samples:
                message.samples.add(
                    stack_index=stack, attribute_indices=labels, values=[values[number]]
                )
        self._tables.string_table.extend(map(_utf8, self._strings))
        return bytes(self._request.SerializeToString())

    def _fill(self, message: ProtoMessage, value_type: ValueType) -> None:
        message.type_strindex = self._string(value_type.type)
        message.unit_strindex = self._string(value_type.unit)

    def _comments(self, comments: tuple[str, ...]) -> list[int]:
        """The index of the attribute that has the comments, in a list; none without comments."""
        if not comments:
            return []
        attribute = self._tables.attribute_table.add(key_strindex=self._string(_COMMENT))
        for comment in comments:
            attribute.value.array_value.values.add(string_value=_utf8(comment))
        return [len(self._tables.attribute_table) - 1]

    def _label(self, label: Label) -> int:
        return self._number("attribute", label) or self._attribute(
            label, label.key, label.value, label.unit
        )

    def _plain(self, name: str, value: str) -> int:
        return self._number("attribute", (name, value)) or self._attribute(
            (name, value), name, value
        )

    def _attribute(self, key: Hashable, name: str, value: str | int, unit: str = "") -> int:
        attribute = self._new("attribute", key)
        attribute.key_strindex = self._string(name)
        attribute.unit_strindex = self._string(unit)
        if isinstance(value, str):
            attribute.value.string_value = _utf8(value)
        else:
            attribute.value.int_value = value
        return self._numbers["attribute", key]

    def _stack(self, locations: tuple[Location, ...]) -> int:
        if not locations:
            return 0
        indices = tuple(map(self._location, locations))
        known = self._number("stack", indices)
        if not known:
            self._new("stack", indices).location_indices.extend(indices)
        return known or self._numbers["stack", indices]

    def _location(self, location: Location) -> int:
        # Locations are shared, so this is cheaper than to compare them; the profile keeps them.
        known = self._number("shared", id(location)) or self._number("location", location)
        if not known:
            mapping = self._mapping(location.mapping) if location.mapping else 0
            functions = [(self._function(frame), frame.line) for frame in location.frames]
            message = self._new("location", location)
            message.mapping_index, message.address = mapping, location.address
            for function, line in functions:
                message.lines.add(function_index=function, line=line)
            if kind := _frame_type(location):
                message.attribute_indices.append(self._plain(_FRAME_TYPE, kind))
            known = self._numbers["location", location]
        self._numbers["shared", id(location)] = known
        return known

    def _function(self, frame: Frame) -> int:
        key = (frame.function, frame.file, frame.start_line)
        known = self._number("function", key)
        if not known:
            message = self._new("function", key)
            message.name_strindex = message.system_name_strindex = self._string(frame.function)
            message.filename_strindex = self._string(frame.file)
            message.start_line = frame.start_line
        return known or self._numbers["function", key]

    def _mapping(self, mapping: MemoryMapping) -> int:
        known = self._number("mapping", mapping)
        if not known:
            message = self._new("mapping", mapping)
            message.memory_start, message.memory_limit = mapping.start, mapping.limit
            message.file_offset = mapping.offset
            message.filename_strindex = self._string(mapping.filename)
            if mapping.build_id:
                message.attribute_indices.append(self._plain(_BUILD_ID, mapping.build_id))
        return known or self._numbers["mapping", mapping]

    def _number(self, table: str, key: Hashable) -> int:
        """The index of an entry in its table; 0 if it is not there."""
        return self._numbers.get((table, key), 0)

    def _new(self, table: str, key: Hashable) -> ProtoMessage:
        """A new entry of a table."""
        entries = getattr(self._tables, f"{table}_table")
        self._numbers[table, key] = len(entries)
        return entries.add()

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))


def _frame_type(location: Location) -> str:
    """What compiled a frame, as the semantic conventions call it; "" if that is not sure."""
    if location.mapping and location.mapping.filename.startswith(_KERNEL):
        return "kernel"
    return "go" if location.frames and location.frames[0].file.endswith(".go") else ""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
