"""Writes the pprof format (profile.proto in gzip) as Go's runtime/pprof writes it.

Equal profiles give equal bytes, independent of the clock, of hashes and of the samples' order.
"""

import gzip
from itertools import groupby
from typing import TYPE_CHECKING

from ebpfprof.export.pprof.lengths import lengths_fields
from ebpfprof.profile.length_labels import by_length
from ebpfprof.profile.model import Frame, Label, Location, Mapping, Profile, Sample, ValueType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ebpfprof.export.proto_messages import ProtoMessage


_SAMPLES_AT_ONCE = 512


def encode(profile: Profile, *, keeps_lengths: bool = False) -> bytes:
    """The profile as a gzipped profile.proto. If it `keeps_lengths`, decode() finds them again.

    As in Go (runtime/pprof/proto.go), samples are sorted by their last value, descending; ids
    count from 1 in the order of first use; mappings whose addresses all have names have
    has_functions. Unlike Go, it writes comments, and the duration
    for every kind of profile.
    """
    kept = lengths_fields(in_order(profile.samples)) if keeps_lengths else b""
    return compressed(message(profile) + kept)


def message(profile: Profile) -> bytes:
    """The profile as a profile.proto; encode() compresses it."""
    return _Encoder().encode(by_length(profile) if profile.has_length_labels else profile)


def compressed(message: bytes) -> bytes:
    """A profile.proto in gzip. Level 1 is Go's BestSpeed."""
    return gzip.compress(message, compresslevel=1, mtime=0)


class _Encoder:
    """The tables of one profile while it is written."""

    def __init__(self) -> None:
        # Importing protobuf takes about 20 ms: only commands that write a profile pay for it.
        from ebpfprof.export.pprof.schema import profile_class

        self._message: ProtoMessage = profile_class()()
        self._strings: dict[str, int] = {"": 0}
        self._mappings: dict[Mapping, int] = {}
        self._locations: dict[Location, int] = {}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._symbolized: dict[int, bool] = {}

    def encode(self, profile: Profile) -> bytes:
        message = self._message
        for value_type in profile.sample_types:
            message.sample_type.add(**self._value_type(value_type))
        # In protobuf, the concatenated parts of a message are that message.
        parts = [bytes(message.SerializeToString())]
        message.Clear()
        for mapping in profile.mappings:
            self._mapping(mapping)
        parts += self._samples(profile.samples)
        for mapping_message in message.mapping:
            mapping_message.has_functions = self._symbolized.get(mapping_message.id, False)
        message.time_nanos = profile.time_ns
        message.duration_nanos = profile.duration_ns
        for field, value in self._value_type(profile.period_type).items():
            setattr(message.period_type, field, value)
        message.period = profile.period
        if profile.default_sample_type:
            message.default_sample_type = self._string(profile.default_sample_type)
        message.comment.extend([self._string(comment) for comment in profile.comments])
        # Strict readers refuse a whole profile because of one name that is not UTF-8.
        message.string_table.extend([s.encode("utf-8", "backslashreplace") for s in self._strings])
        return b"".join([*parts, bytes(message.SerializeToString())])

    def _samples(self, samples: "Iterable[Sample]") -> "Iterator[bytes]":
        """The samples, in parts: 20,000 deep stacks at once would take 30 MB."""
        part = type(self._message)()
        # The object's id() is a cheaper key than a Location, and stable: the profile keeps all
        # locations alive.
        ids: dict[int, int] = {}
        for sample in in_order(samples):
            try:
                location_ids = list(map(ids.__getitem__, map(id, sample.locations)))
            except KeyError:
                ids.update(
                    (id(location), self._location(location)) for location in sample.locations
                )
                location_ids = [ids[id(location)] for location in sample.locations]
            message = part.sample.add(location_id=location_ids, value=sample.values)
            for label in sample.labels:
                self._label(message, label)
            if len(part.sample) == _SAMPLES_AT_ONCE:
                yield bytes(part.SerializeToString())
                part = type(part)()  # Clear() would keep the memory
        yield bytes(part.SerializeToString())

    def _label(self, message: "ProtoMessage", label: Label) -> None:
        key = self._string(label.key)
        if isinstance(label.value, str):
            message.label.add(key=key, str=self._string(label.value))
        else:
            message.label.add(key=key, num=label.value, num_unit=self._string(label.unit))

    def _location(self, location: Location) -> int:
        known = self._locations.get(location)
        if known is not None:
            return known
        number = self._locations[location] = len(self._locations) + 1
        mapping_id = 0
        if location.mapping is not None:
            mapping_id = self._mapping(location.mapping)
            named = bool(location.frames) and self._symbolized.get(mapping_id, True)
            self._symbolized[mapping_id] = named
        message = self._message.location.add(
            id=number, mapping_id=mapping_id, address=location.address
        )
        for frame in location.frames:
            message.line.add(function_id=self._function(frame), line=frame.line)
        return number

    def _function(self, frame: Frame) -> int:
        key = (frame.function, frame.file, frame.start_line)
        known = self._functions.get(key)
        if known is not None:
            return known
        number = self._functions[key] = len(self._functions) + 1
        name = self._string(frame.function)
        self._message.function.add(
            id=number,
            name=name,
            system_name=name,
            filename=self._string(frame.file),
            start_line=frame.start_line,
        )
        return number

    def _mapping(self, mapping: Mapping) -> int:
        known = self._mappings.get(mapping)
        if known is not None:
            return known
        number = self._mappings[mapping] = len(self._mappings) + 1
        self._message.mapping.add(
            id=number,
            memory_start=mapping.start,
            memory_limit=mapping.limit,
            file_offset=mapping.offset,
            filename=self._string(mapping.filename),
            build_id=self._string(mapping.build_id),
        )
        return number

    def _value_type(self, value_type: ValueType) -> dict[str, int]:
        return {"type": self._string(value_type.type), "unit": self._string(value_type.unit)}

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))


def in_order(samples: "Iterable[Sample]") -> "Iterator[Sample]":
    """The samples in the order in which a file has them."""
    # Go sorts only by the delay. We sort samples of the same delay by addresses and labels.
    for _, group in groupby(sorted(samples, key=_descending), key=_descending):
        alike = list(group)
        yield from sorted(alike, key=_order_of_equals) if len(alike) > 1 else alike


def _descending(sample: Sample) -> int:
    return -sample.values[-1]


def _order_of_equals(sample: Sample) -> tuple[list[int], list[tuple[str, str]]]:
    addresses = [location.address for location in sample.locations]
    return addresses, [(label.key, str(label.value)) for label in sample.labels]
