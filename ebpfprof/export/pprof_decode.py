"""The pprof format (profile.proto), read: files of ours, of Go, of other tools, also hostile ones.

A small file may claim very much: gzip unpacks to a thousand times its size, an empty message takes
two bytes there and fifty here. So the fields are told apart by their lengths first, and each
message is parsed by itself, while everything is counted.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile import Frame, Kind, Label, Location, Mapping, Profile, Sample, ValueType

if TYPE_CHECKING:
    from ebpfprof.export.pprof_schema import ProtoMessage

MAX_DECODED_BYTES = 256 << 20
"""The largest profile, unpacked, that decode() reads: some forty times what 100,000 stacks take."""

MAX_MEMBERS = 64
"""The most gzip streams, one behind the other, that are read as one file."""

MAX_ITEMS = 1 << 22
"""The most samples, locations, lines, labels, functions, mappings and strings, all together."""

MAX_DEPTH = 1 << 14
"""The most frames of one stack, inlined ones included; Go's own have 1,024 at most."""

MAX_FRAMES = 1 << 25
"""The most frames of all stacks together, inlined ones included."""

MAX_TYPES = 64
"""The most sample types; Go's own profiles have four at most."""

MAX_COMMENTS = 4096
"""The most comments."""

_MAX_MESSAGE = 1 << 20  # bytes of one sample, mapping, location or function
_MAX_HEADER = 1 << 20  # bytes of all else but strings

_TOO_DEEP = f"A stack has more than {MAX_DEPTH} frames."
_GZIP = b"\x1f\x8b"
# What people take for a profile, and what to do about it.
_OTHER_FILES = (
    (b"--- contention", "text"),
    (b"--- mutex", "text"),
    (b"--- block", "text"),
    (b"heap profile:", "text"),
    (b"goroutine ", "text"),
    (b"\0" * 8 + b"\x03" + b"\0" * 7, "gperftools"),
    (b"go 1.", "trace"),
    (b"PERFILE2", "perf"),
    (b"\x7fELF", "program"),
    (b"<", "page"),
    (b"{", "json"),
)
_COUNTS_AS_TEXT = re.compile(rb"[^\n]{1,256} profile: total [0-9]")
_ADVICE = {
    "text": "This is a profile in Go's old text form: fetch it again without `debug=`.",
    "gperftools": "This is a CPU profile in the old form of gperftools: convert it with "
    "`go tool pprof -proto PROGRAM FILE`.",
    "trace": "This is an execution trace of Go's: use `go tool trace` for it, or make a profile "
    "of it with `go tool trace -pprof=sync`.",
    "perf": "These are data of perf: use `perf report` for them, or convert them with "
    "perf_to_profile.",
    "program": "This is a program, not a profile: record it with `ebpfprof run`.",
    "page": "This is a web page, not a profile: the address it came from may be wrong.",
    "json": "This is JSON, not a pprof file: give the pprof file that it was made from.",
}
# Fields of Profile by number: the tables, of which each has many, and those that stand once.
_SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 2, 3, 4, 5, 6
_TABLES = {_SAMPLE: "Sample", _MAPPING: "Mapping", _LOCATION: "Location", _FUNCTION: "Function"}
_TIME_NANOS = 9
_HEADER = (1, *range(7, 16))
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


def decode(data: bytes, *, kind: Kind | None = None) -> Profile:
    """Read a profile.proto, gzipped or not; refuse what pprof's own CheckValid refuses.

    Without `kind` it is told from the sample types: "" for others than ours. Contentions are a
    mutex profile's if all of them are charged to what unlocks something, and else a block
    profile's: the format does not say it. Raises InvalidProfile, also if the file holds more
    than the bounds of this module.
    """
    unpacked = _unpack(data)
    for start, what in _OTHER_FILES:
        if unpacked.startswith(start):
            raise InvalidProfile(_ADVICE[what])
    if _COUNTS_AS_TEXT.match(unpacked):
        raise InvalidProfile(_ADVICE["text"])
    return _Decoder(unpacked).profile(kind)


def _unpack(data: bytes) -> bytes:
    if not data:
        raise InvalidProfile("The file is empty.")
    parts = []
    room = MAX_DECODED_BYTES
    rest = data
    if not data.startswith(_GZIP):
        parts, room, rest = [data], room - len(data), b""
    for _ in range(MAX_MEMBERS):
        if not rest or room < 0:
            break
        stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            part = stream.decompress(rest, room + 1)
        except zlib.error as error:
            raise InvalidProfile(f"The profile's gzip data is damaged: {error}.") from error
        room -= len(part)
        if not stream.eof and room >= 0:
            raise InvalidProfile(
                "The profile's gzip data is damaged: it ends too early. Fetch it again."
            )
        parts.append(part)
        rest = stream.unused_data
    if room < 0:
        raise InvalidProfile(f"The profile is larger than {MAX_DECODED_BYTES >> 20} MiB unpacked.")
    if rest:
        raise InvalidProfile(f"The file is more than {MAX_MEMBERS} gzip files in one.")
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends. Raises IndexError at the end, ValueError."""
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    for count in range(1, 10):
        byte = data[at + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number, at + count + 1
    raise ValueError("a number of more than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, where it begins, where its content begins, its end.

    Raises IndexError and ValueError if it is malformed.
    """
    at, size = 0, len(data)
    while at < size:
        start = at
        tag, at = _varint(data, at)
        wire = tag & 7
        content = at
        if wire == _BYTES:
            length, content = _varint(data, at)
            at = content + length
        elif wire == _VARINT:
            _, at = _varint(data, at)
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:
            raise ValueError(f"a field of the wire type {wire}")
        if at > size:
            raise IndexError("a field beyond the end")
        number = tag >> 3
        if wire != _BYTES and (number in _TABLES or number == _STRING):
            raise ValueError(f"the field {number} of the wire type {wire}")
        yield number, start, content, at


class _Decoder:
    """The tables of one profile while it is read."""

    def __init__(self, data: bytes) -> None:
        from google.protobuf.message import DecodeError

        self._items = 0
        self._frames = 0
        self._strings: list[str] = []
        self._messages: dict[int, list[ProtoMessage]] = {}
        try:
            self._message = self._split(data)
        except (IndexError, ValueError, DecodeError) as error:
            raise InvalidProfile(
                "This is no pprof profile: its protocol buffer is malformed."
            ) from error
        if not self._strings or self._strings[0]:
            raise InvalidProfile("The profile's string table does not begin with an empty string.")

    def _split(self, data: bytes) -> "ProtoMessage":
        """Parse each message of the tables by itself; return the one with all the rest."""
        from ebpfprof.export.pprof_schema import message_class

        classes = {number: message_class(name) for number, name in _TABLES.items()}
        tables: dict[int, list[ProtoMessage]] = {number: [] for number in _TABLES}
        self._messages = tables
        header: list[bytes] = []
        times = 0
        for number, start, content, end in _fields(data):
            self._count(1)
            if number in classes:
                if end - content > _MAX_MESSAGE:
                    raise InvalidProfile(f"A {_TABLES[number].lower()} of the profile is huge.")
                item = classes[number].FromString(data[content:end])
                self._check_size(number, item)
                tables[number].append(item)
            elif number == _STRING:
                self._strings.append(data[content:end].decode("utf-8", "replace"))
            elif number in _HEADER:
                times += number == _TIME_NANOS
                header.append(data[start:end])
        if times > 1:
            raise InvalidProfile(
                "The file holds several profiles, one behind the other: give one of them, or "
                "merge them with `go tool pprof -proto FILE FILE...`."
            )
        if sum(map(len, header)) > _MAX_HEADER:
            raise InvalidProfile("The profile's comments or types are huge.")
        message = message_class("Profile").FromString(b"".join(header))
        if len(message.comment) > MAX_COMMENTS or len(message.sample_type) > MAX_TYPES:
            raise InvalidProfile(
                f"The profile has more than {MAX_COMMENTS} comments or {MAX_TYPES} sample types."
            )
        return message

    def _check_size(self, number: int, item: "ProtoMessage") -> None:
        if number == _SAMPLE:
            if len(item.location_id) > MAX_DEPTH:
                raise InvalidProfile(_TOO_DEEP)
            if len(item.value) > MAX_TYPES:
                raise InvalidProfile(f"A sample has more than {MAX_TYPES} values.")
            self._count(len(item.label))
        elif number == _LOCATION:
            self._count(len(item.line))

    def _count(self, items: int) -> None:
        self._items += items
        if self._items > MAX_ITEMS:
            raise InvalidProfile(f"The profile has more than {MAX_ITEMS} entries.")

    def profile(self, kind: Kind | None) -> Profile:
        message = self._message
        sample_types = tuple(self._value_type(item) for item in message.sample_type)
        mappings = self._mappings()
        locations = self._locations(mappings, self._functions())
        samples = tuple(
            self._sample(item, len(sample_types), locations)
            for item in _drained(self._messages[_SAMPLE])
        )
        if not sample_types:
            raise InvalidProfile("The profile is of nothing: it has no sample types.")
        return Profile(
            kind=_kind(sample_types, samples) if kind is None else kind,
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
        for item in _drained(self._messages[_MAPPING]):
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
        for item in _drained(self._messages[_FUNCTION]):
            _check_id("function", item.id, table)
            self._string(item.system_name)
            table[item.id] = (self._string(item.name), self._string(item.filename), item.start_line)
        return table

    def _locations(
        self, mappings: dict[int, Mapping], functions: dict[int, tuple[str, str, int]]
    ) -> dict[int, Location]:
        table: dict[int, Location] = {}
        for item in _drained(self._messages[_LOCATION]):
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
            stack = tuple([locations[number] for number in item.location_id])
        except KeyError as error:
            raise InvalidProfile(f"A sample has a location, {error}, that is not there.") from error
        depth = sum([len(location.frames) or 1 for location in stack])
        if depth > MAX_DEPTH:
            raise InvalidProfile(_TOO_DEEP)
        self._frames += depth
        if self._frames > MAX_FRAMES:
            raise InvalidProfile(f"The stacks have more than {MAX_FRAMES} frames.")
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


def _drained(messages: "list[ProtoMessage]") -> "Iterator[ProtoMessage]":
    """The messages in their order, each forgotten before the next: they are as large as what is
    made of them.
    """
    messages.reverse()
    while messages:
        yield messages.pop()


def _check_id(what: str, number: int, table: dict[int, Any]) -> None:
    if number == 0 or number in table:
        raise InvalidProfile(f"The profile has a {what} whose id, {number}, is 0 or not unique.")


_KINDS: dict[tuple[str, ...], Kind] = {
    ("contentions", "delay"): "block",
    ("samples", "cpu"): "cpu",
    ("goroutines", "waiting"): "open",
}


# Releases of the runtime's own locks whose stacks Go could not keep (runtime/mprof.go, Go 1.22 on).
_LOST_RELEASES = "runtime._LostContendedRuntimeLock"


def _kind(sample_types: tuple[ValueType, ...], samples: tuple[Sample, ...]) -> Kind:
    found = _KINDS.get(tuple([value_type.type for value_type in sample_types]), "")
    if found == "block" and samples and all(map(_is_release, samples)):
        return "mutex"
    return found


def _is_release(sample: Sample) -> bool:
    """Whether the leaf is a function of sync or the runtime that unlocks, or stands for some."""
    frames = sample.locations[0].frames if sample.locations else ()
    if not frames:
        return False
    if frames[0].function == _LOST_RELEASES:
        return True
    package, _, name = frames[0].function.partition(".")
    return package in ("sync", "internal/sync", "runtime") and "unlock" in name.lower()
