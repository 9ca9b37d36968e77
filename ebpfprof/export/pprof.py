"""The pprof format (profile.proto in gzip), written as Go's runtime/pprof writes it.

Same input, same bytes: nothing of the clock, of hashing or of the order of the samples in it.
"""

import gzip
import io
import zlib
from typing import TYPE_CHECKING, Any

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile import (
    Frame,
    Kind,
    Label,
    Location,
    Mapping,
    Profile,
    Sample,
    ValueType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ebpfprof.export.pprof_schema import ProtoMessage

MAX_DECODED_BYTES = 64 << 20
"""The largest profile, unpacked, that decode() reads: some ten times what 100,000 stacks take."""


def encode(profile: Profile) -> bytes:
    """The profile as a gzipped profile.proto.

    As Go does (runtime/pprof/proto.go): samples by their last value, descending; ids from 1 in
    the order of first use; has_functions on each mapping whose addresses all have names; no
    default_sample_type. Beyond Go: comments, and the duration for every kind of profile.
    """
    message = _Encoder().encode(profile)
    # gzip level 1 is Go's BestSpeed.
    return gzip.compress(message, compresslevel=1, mtime=0)


class _Encoder:
    """The tables of one profile while it is written."""

    def __init__(self) -> None:
        # protobuf takes some 20 ms to import: only who writes a profile pays for it.
        from ebpfprof.export.pprof_schema import profile_class

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
        for mapping in profile.mappings:
            self._mapping(mapping)
        self._samples(profile.samples)
        for mapping_message in message.mapping:
            mapping_message.has_functions = self._symbolized.get(mapping_message.id, False)
        message.time_nanos = profile.time_ns
        message.duration_nanos = profile.duration_ns
        for field, value in self._value_type(profile.period_type).items():
            setattr(message.period_type, field, value)
        message.period = profile.period
        message.comment.extend([self._string(comment) for comment in profile.comments])
        # A reader that insists on UTF-8 would refuse the whole profile for one odd file name.
        message.string_table.extend([s.encode("utf-8", "backslashreplace") for s in self._strings])
        return bytes(message.SerializeToString())

    def _samples(self, samples: "Iterable[Sample]") -> None:
        add = self._message.sample.add
        # Hashing a Location goes through all its frames; the address of the object is a
        # cheaper key, and stable since the profile holds every one of them.
        ids: dict[int, int] = {}
        for sample in sorted(samples, key=_sample_order):
            location_ids = []
            for location in sample.locations:
                location_id = ids.get(id(location))
                if location_id is None:
                    location_id = ids[id(location)] = self._location(location)
                location_ids.append(location_id)
            message = add(location_id=location_ids, value=sample.values)
            for label in sample.labels:
                self._label(message, label)

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


def _sample_order(sample: Sample) -> tuple[int, list[int], list[tuple[str, str]]]:
    # Go sorts by the delay alone; addresses and labels make the order of equals definite.
    addresses = [location.address for location in sample.locations]
    return -sample.values[-1], addresses, [(each.key, str(each.value)) for each in sample.labels]


def decode(data: bytes, *, kind: Kind | None = None) -> Profile:
    """Read a profile.proto, gzipped or not; refuse what pprof's own CheckValid refuses.

    The format does not say whether contentions are of a block or a mutex profile: without
    `kind` they are taken for a block profile's. Raises InvalidProfile.
    """
    from google.protobuf.message import DecodeError

    from ebpfprof.export.pprof_schema import profile_class

    message = profile_class()()
    try:
        message.ParseFromString(_unpack(data))
    except DecodeError as error:
        raise InvalidProfile(
            "This is no pprof profile: its protocol buffer is malformed."
        ) from error
    return _Decoder(message).profile(kind)


def _unpack(data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b":
        unpacked = data
    else:
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                unpacked = file.read(MAX_DECODED_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidProfile(f"The profile's gzip data is damaged: {error}.") from error
    if len(unpacked) > MAX_DECODED_BYTES:
        raise InvalidProfile(f"The profile is larger than {MAX_DECODED_BYTES >> 20} MiB unpacked.")
    return unpacked


class _Decoder:
    """The tables of one profile while it is read."""

    def __init__(self, message: "ProtoMessage") -> None:
        self._message = message
        self._strings: list[str] = [
            text.decode("utf-8", "replace") for text in message.string_table
        ]
        if not self._strings or self._strings[0]:
            raise InvalidProfile("The profile's string table does not begin with an empty string.")

    def profile(self, kind: Kind | None) -> Profile:
        message = self._message
        sample_types = tuple(self._value_type(item) for item in message.sample_type)
        mappings = self._mappings()
        locations = self._locations(mappings, self._functions())
        samples = tuple(self._sample(item, len(sample_types), locations) for item in message.sample)
        return Profile(
            kind=kind or _kind(sample_types),
            sample_types=sample_types,
            period_type=self._value_type(message.period_type),
            period=message.period,
            samples=samples,
            mappings=tuple(mappings.values()),
            time_ns=message.time_nanos,
            duration_ns=message.duration_nanos,
            comments=tuple(self._string(index) for index in message.comment),
        )

    def _mappings(self) -> dict[int, Mapping]:
        table: dict[int, Mapping] = {}
        for item in self._message.mapping:
            _check_id("mapping", item.id, table)
            table[item.id] = Mapping(
                start=item.memory_start,
                limit=item.memory_limit,
                offset=item.file_offset,
                filename=self._string(item.filename),
                build_id=self._string(item.build_id),
            )
        return table

    def _functions(self) -> dict[int, tuple[str, str, int]]:
        table: dict[int, tuple[str, str, int]] = {}
        for item in self._message.function:
            _check_id("function", item.id, table)
            self._string(item.system_name)
            table[item.id] = (self._string(item.name), self._string(item.filename), item.start_line)
        return table

    def _locations(
        self, mappings: dict[int, Mapping], functions: dict[int, tuple[str, str, int]]
    ) -> dict[int, Location]:
        table: dict[int, Location] = {}
        for item in self._message.location:
            _check_id("location", item.id, table)
            if item.mapping_id and item.mapping_id not in mappings:
                raise InvalidProfile(f"Location {item.id} has a mapping that is not there.")
            frames = []
            for line in item.line:
                if line.function_id not in functions:
                    raise InvalidProfile(f"Location {item.id} has a line without a function.")
                name, file, start_line = functions[line.function_id]
                frames.append(Frame(name, file, line.line, start_line))
            table[item.id] = Location(item.address, mappings.get(item.mapping_id), tuple(frames))
        return table

    def _sample(
        self, item: "ProtoMessage", n_values: int, locations: dict[int, Location]
    ) -> Sample:
        if len(item.value) != n_values or n_values == 0:
            raise InvalidProfile(
                f"A sample has {len(item.value)} values for {n_values} sample types."
            )
        try:
            stack = tuple(locations[number] for number in item.location_id)
        except KeyError as error:
            raise InvalidProfile(f"A sample has a location, {error}, that is not there.") from error
        return Sample(stack, tuple(item.value), tuple(self._labels(item.label)))

    def _labels(self, items: "Iterable[ProtoMessage]") -> "Iterable[Label]":
        for item in items:
            key = self._string(item.key)
            if item.str:
                yield Label(key, self._string(item.str))
            elif item.num or item.num_unit:  # pprof, too, drops the others
                yield Label(key, item.num, self._string(item.num_unit))

    def _value_type(self, item: "ProtoMessage") -> ValueType:
        return ValueType(self._string(item.type), self._string(item.unit))

    def _string(self, index: int) -> str:
        if not 0 <= index < len(self._strings):
            raise InvalidProfile(f"The string {index} is not in the profile's table.")
        return self._strings[index]


def _check_id(what: str, number: int, table: dict[int, Any]) -> None:
    if number == 0 or number in table:
        raise InvalidProfile(f"The profile has a {what} whose id, {number}, is 0 or not unique.")


def _kind(sample_types: tuple[ValueType, ...]) -> Kind:
    names = [value_type.type for value_type in sample_types]
    if names == ["contentions", "delay"]:
        return "block"
    if names == ["samples", "cpu"]:
        return "cpu"
    raise InvalidProfile(
        f"This is no block, mutex or CPU profile: its sample types are {', '.join(names) or 'none'}"
        ". Use `go tool pprof` for it."
    )
