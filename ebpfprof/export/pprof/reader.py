"""Reads the pprof format (profile.proto): our files, files of Go and other tools, hostile files.

A small file may need much memory: gzip data unpack to a thousand times their size, and an empty
message takes two bytes in the file and fifty in memory. So we unpack and parse the file in pieces,
add up samples of the same stack at once, and count all entries. Memory grows only with the number
of distinct entries.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ebpfprof.errors import InvalidProfile, to_type
from ebpfprof.export.pprof.lengths import LENGTHS, lengths_in
from ebpfprof.export.pprof.wire import fields, unpacked
from ebpfprof.profile.idle_comments import with_behaviours
from ebpfprof.profile.length_labels import put_together
from ebpfprof.profile.model import Frame, Kind, Label, Location, Mapping, Profile, Sample, ValueType
from ebpfprof.profilers.registry import kind_of

if TYPE_CHECKING:
    from ebpfprof.export.proto_messages import ProtoMessage

MAX_ITEMS = 1 << 22
"""The most samples, locations, lines, labels, functions, mappings and strings, all together."""

MAX_DISTINCT = 1 << 20
"""The same, but samples with the same stack and labels count once. 100,000 stacks take a tenth."""

MAX_DEPTH = 1 << 14
"""The most frames of one stack, inlined ones included; Go's own profiles have 1,024 at most."""

MAX_FRAMES = 1 << 25
"""The most frames of all distinct stacks together, inlined ones included."""

MAX_TYPES = 64
"""The most sample types; Go's own profiles have four at most."""

MAX_COMMENTS = 4096
"""The most comments."""

_MAX_HEADER = 1 << 20  # bytes of all fields except tables
_MAX_STRINGS = 64 << 20  # bytes of all strings
_SAMPLES_AT_ONCE = 1 << 14
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

_TOO_DEEP = f"A stack has more than {MAX_DEPTH} frames."
# Beginnings of files that users mistake for pprof files, and keys of _ADVICE.
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
_LONGEST_START = 512
_COUNTS_AS_TEXT = re.compile(rb"[^\n]{1,256} profile: total [0-9]")
_ADVICE = {
    "text": "This is a profile in Go's old text format: fetch it again without debug=.",
    "gperftools": "This is a CPU profile in the old format of gperftools. To convert it:"
    + to_type("go tool pprof -proto PROGRAM FILE"),
    "trace": "This is a Go execution trace. To open it, or to make a profile of it:"
    + to_type("go tool trace FILE", "go tool trace -pprof=sync FILE"),
    "perf": "This is a data file of perf: convert it with perf_to_profile, or read it:"
    + to_type("perf report -i FILE"),
    "program": "This is a program, not a profile. To record it:" + to_type("ebpfprof run FILE"),
    "page": "This is a web page, not a profile: its address may be wrong.",
    "json": "This is JSON, not a pprof file: use the pprof file that it was made from.",
}
# Fields of Profile by number: those with many entries, and the others.
_SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 2, 3, 4, 5, 6
_TABLES = {_MAPPING: "Mapping", _LOCATION: "Location", _FUNCTION: "Function"}
_TIME_NANOS = 9
_HEADER = (1, *range(7, 16))


def decode(data: bytes, *, kind: Kind | None = None) -> Profile:
    """Read a profile.proto, gzipped or not; refuse what pprof's own CheckValid refuses.

    The format has no field for the kind. Without `kind`, the registry finds it by the sample types
    and the samples; it is "" if no kind fits. Samples with the same stack and labels are added up.
    Raises InvalidProfile, also if the file exceeds the bounds of this module and of
    export.pprof.wire.
    """
    return with_behaviours(put_together(_Decoder(_refusing_others(unpacked(data))).profile(kind)))


def _refusing_others(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the pieces. Raises InvalidProfile if they begin like one of _OTHER_FILES."""
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= _LONGEST_START:
            break
    for start, what in _OTHER_FILES:
        if first.startswith(start):
            raise InvalidProfile(_ADVICE[what])
    if _COUNTS_AS_TEXT.match(first):
        raise InvalidProfile(_ADVICE["text"])
    yield first
    yield from pieces


class _Decoder:
    """The tables of one profile while it is read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        from google.protobuf.message import DecodeError

        self._items = self._distinct = self._frames = 0
        self._strings: list[str] = []
        self._lengths: list[bytes] = []  # of the samples in their order, or of none
        self._strings_bytes = 0
        self._messages: dict[int, list[ProtoMessage]] = {number: [] for number in _TABLES}
        self._merged = _Merged(self._keep)
        try:
            self._message = self._split(pieces)
        except (ValueError, DecodeError) as error:
            raise InvalidProfile(
                "This is not a pprof profile: its protocol buffer is malformed."
            ) from error
        if not self._strings or self._strings[0]:
            raise InvalidProfile("The profile's string table does not begin with an empty string.")

    def _split(self, pieces: Iterable[bytes]) -> "ProtoMessage":
        """Parse each entry of the tables separately; return a message of all other fields."""
        from ebpfprof.export.pprof.schema import message_class

        classes = {number: message_class(name) for number, name in _TABLES.items()}
        header: list[bytes] = []
        times = header_bytes = 0
        for number, has_length, content, whole, count in fields(pieces):
            self._items += count
            if self._items > MAX_ITEMS:
                raise InvalidProfile(f"The profile has more than {MAX_ITEMS} entries.")
            if not has_length and number in (_SAMPLE, _STRING, *_TABLES):
                raise ValueError(f"the field {number} without a length")
            if number == _SAMPLE:
                self._merged.add(content, count)
            elif number in classes:
                self._keep(count)
                for _ in range(count):
                    item = classes[number].FromString(content)
                    self._keep(len(item.line) if number == _LOCATION else 0)
                    self._messages[number].append(item)
            elif number == LENGTHS:
                self._keep(count)
                self._lengths += [content] * count
            elif number == _STRING:
                self._keep_strings(content, count)
            elif number in _HEADER:
                times += count * (number == _TIME_NANOS)
                header_bytes += count * len(whole)
                if header_bytes > _MAX_HEADER:
                    raise InvalidProfile("The profile's comments or types are huge.")
                header.append(whole * count)
        if times > 1:
            raise InvalidProfile(
                "The file holds several profiles, one after the other: use one of them, or merge "
                f"them:{to_type('go tool pprof -proto FILE FILE...')}"
            )
        self._merged.settle()
        message = message_class("Profile").FromString(b"".join(header))
        if len(message.comment) > MAX_COMMENTS or len(message.sample_type) > MAX_TYPES:
            raise InvalidProfile(
                f"The profile has more than {MAX_COMMENTS} comments or {MAX_TYPES} sample types."
            )
        return message

    def _keep(self, count: int) -> None:
        """Count entries that we hold in memory. Raises InvalidProfile."""
        self._distinct += count
        if self._distinct > MAX_DISTINCT:
            raise InvalidProfile(
                f"The profile has more than {MAX_DISTINCT} different entries: use a part of it:"
                + to_type("go tool pprof -proto -focus=REGEXP FILE")
            )

    def _keep_strings(self, content: bytes, count: int) -> None:
        self._keep(count)
        self._strings_bytes += count * len(content)
        if self._strings_bytes > _MAX_STRINGS:
            raise InvalidProfile(f"The profile has more than {_MAX_STRINGS >> 20} MiB of names.")
        self._strings += [content.decode("utf-8", "replace")] * count

    def profile(self, kind: Kind | None) -> Profile:
        message = self._message
        sample_types = tuple(self._value_type(item) for item in message.sample_type)
        mappings = self._mappings()
        locations = self._locations(mappings, self._functions())
        samples = tuple(
            self._sample(item, values, len(sample_types), locations)
            for item, values in self._merged.drained()
        )
        if not sample_types:
            raise InvalidProfile("The profile has no sample types.")
        if len(self._lengths) == len(samples):
            samples = tuple(
                replace(sample, lengths=lengths_in(content)) if content else sample
                for sample, content in zip(samples, self._lengths, strict=True)
            )
        default = self._string(message.default_sample_type)
        return Profile(
            kind=_name_of_kind(sample_types, samples, default) if kind is None else kind,
            sample_types=sample_types,
            period_type=self._value_type(message.period_type),
            period=message.period,
            samples=samples,
            mappings=tuple(mappings.values()),
            time_ns=message.time_nanos,
            duration_ns=message.duration_nanos,
            comments=tuple(self._string(index) for index in message.comment),
            default_sample_type=default,
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
                raise InvalidProfile(f"Location {item.id} has a mapping that does not exist.")
            frames = []
            for line in item.line:
                if line.function_id not in functions:
                    raise InvalidProfile(f"Location {item.id} has a line without a function.")
                name, file, start_line = functions[line.function_id]
                frames.append(Frame(name, file, line.line, start_line))
            table[item.id] = Location(item.address, mappings.get(item.mapping_id), tuple(frames))
        return table

    def _sample(
        self,
        item: "ProtoMessage",
        values: tuple[int, ...],
        n_values: int,
        locations: dict[int, Location],
    ) -> Sample:
        if len(values) != n_values or n_values == 0:
            raise InvalidProfile(f"A sample has {len(values)} values for {n_values} sample types.")
        if not all(_INT64_MIN <= value <= _INT64_MAX for value in values):
            raise InvalidProfile("The values of a stack's samples add up to more than 64 bits.")
        try:
            stack = tuple([locations[number] for number in item.location_id])
        except KeyError as error:
            raise InvalidProfile(
                f"A sample has a location, {error}, that does not exist."
            ) from error
        depth = sum([len(location.frames) or 1 for location in stack])
        if depth > MAX_DEPTH:
            raise InvalidProfile(_TOO_DEEP)
        self._frames += depth
        if self._frames > MAX_FRAMES:
            raise InvalidProfile(f"The stacks have more than {MAX_FRAMES} frames.")
        return Sample(stack, values, tuple(self._labels(item.label)))

    def _labels(self, items: "Iterable[ProtoMessage]") -> "Iterable[Label]":
        for item in items:
            key = self._string(item.key)
            if item.str:
                yield Label(key, self._string(item.str))
            elif item.num or item.num_unit:  # like pprof, ignore other labels
                yield Label(key, item.num, self._string(item.num_unit))

    def _value_type(self, item: "ProtoMessage") -> ValueType:
        return ValueType(self._string(item.type), self._string(item.unit))

    def _string(self, index: int) -> str:
        if not 0 <= index < len(self._strings):
            raise InvalidProfile(f"The string {index} is not in the profile's table.")
        return self._strings[index]


class _Merged:
    """Samples added up by all of their bytes except those of their values."""

    def __init__(self, keep: Callable[[int], None]) -> None:
        """`keep` is called with the number of each new entry in memory."""
        from ebpfprof.export.pprof.schema import message_class

        self._class = message_class("Sample")
        self._keep = keep
        self._counts: dict[bytes, int] = {}  # of samples as in the file, to parse each once
        self._sums: dict[tuple[bytes, int], tuple[int, ...]] = {}

    def add(self, content: bytes, count: int) -> None:
        """Add `count` equal samples. Raises DecodeError, InvalidProfile."""
        self._counts[content] = self._counts.get(content, 0) + count
        if len(self._counts) >= _SAMPLES_AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Add up the samples so far. Raises DecodeError, InvalidProfile."""
        for content, count in self._counts.items():
            item = self._class.FromString(content)
            if len(item.location_id) > MAX_DEPTH:
                raise InvalidProfile(_TOO_DEEP)
            if len(item.value) > MAX_TYPES:
                raise InvalidProfile(f"A sample has more than {MAX_TYPES} values.")
            values = tuple([value * count for value in item.value])
            item.ClearField("value")
            key = bytes(item.SerializeToString()), len(values)
            known = self._sums.get(key)
            if known is None:
                self._keep(1 + len(item.label))
            else:
                values = tuple(map(operator.add, known, values))
            self._sums[key] = values
        self._counts.clear()

    def drained(self) -> "Iterator[tuple[ProtoMessage, tuple[int, ...]]]":
        """Each sample without its values, and its values, in order; frees each one."""
        for key in list(self._sums):
            yield self._class.FromString(key[0]), self._sums.pop(key)


def _drained(messages: "list[ProtoMessage]") -> "Iterator[ProtoMessage]":
    """The messages in order; frees each before the next, since the model needs the memory."""
    messages.reverse()
    while messages:
        yield messages.pop()


def _check_id(what: str, number: int, table: dict[int, Any]) -> None:
    if number == 0 or number in table:
        raise InvalidProfile(f"The profile has a {what} whose id, {number}, is 0 or not unique.")


def _name_of_kind(
    sample_types: tuple[ValueType, ...], samples: tuple[Sample, ...], default: str
) -> str:
    kind = kind_of(sample_types, samples, default)
    return kind.name if kind else ""
