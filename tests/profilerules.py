"""What readers of pprof files refuse, mistake or drop: go tool pprof, Pyroscope, Parca, Alloy.

Each function says what is wrong with the bytes of a file, in sentences; none says that the file
comes through whole. The rules are theirs, the code is ours and shares nothing with what wrote the
file but the table of field numbers.

Sources, as of 2026: google/pprof (profile.go, CheckValid; encode.go); grafana/pyroscope (validation
of profiles, Normalize); parca (ValidatePprofProfile); grafana/alloy (pyroscope.scrape, its delta).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from ebpfprof.export.pprof.schema import profile_class
from ebpfprof.export.proto_messages import ProtoMessage

MAX_BYTES: Final = 64 << 20
PYROSCOPE_MAX_BYTES: Final = 4 << 20
PYROSCOPE_MAX_SAMPLES: Final = 16_000
PYROSCOPE_MAX_LABELS: Final = 100
PYROSCOPE_MAX_DEPTH: Final = 1_000
PYROSCOPE_MAX_TEXT_BYTES: Final = 65_535
PYROSCOPE_MAX_AGE_S: Final = 3_600
PYROSCOPE_MAX_AHEAD_S: Final = 600
ALLOY_CONTENT_TYPE: Final = "application/octet-stream"
ALLOY_MAX_VALUES: Final = 4
_TIME_NANOS: Final = 9
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class _UnreadableError(Exception):
    """The bytes are no profile at all; the message says why."""


def violations(data: bytes, *, name: str = "block", now_s: float | None = None) -> list[str]:
    """All that the four have against a file, each with the reader's name in front.

    `name` is what Pyroscope and Parca would be given as its name; `now_s`, in Unix time, is when
    they get it: None leaves out the rule about its age.
    """
    readers: dict[str, Callable[[], list[str]]] = {
        "pprof": lambda: pprof(data),
        "Pyroscope": lambda: pyroscope(data, now_s=now_s),
        "Parca": lambda: parca(data, name=name),
        "Alloy": lambda: alloy(data),
    }
    return [f"{reader}: {fault}" for reader, faults in readers.items() for fault in faults()]


def pprof(data: bytes) -> list[str]:
    """What Go's decoder and CheckValid refuse, and labels that it drops."""
    return _faults(data, _pprof)


def pyroscope(data: bytes, *, now_s: float | None = None) -> list[str]:
    """What Pyroscope's push API refuses or cuts, and samples that its normalization drops."""
    return _faults(data, lambda message, raw: _pyroscope(message, raw, now_s))


def parca(data: bytes, *, name: str = "block") -> list[str]:
    """What Parca's ValidatePprofProfile refuses, and types that its queries can't name."""
    return _faults(data, lambda message, _: _parca(message, name))


def alloy(data: bytes, *, content_type: str = ALLOY_CONTENT_TYPE) -> list[str]:
    """What Alloy's scraper refuses, and what its delta of two scrapes would mistake."""
    faults = []
    if not content_type.startswith(ALLOY_CONTENT_TYPE):
        faults.append(f"The content type is {content_type!r}.")
    if not data:
        return [*faults, "The body is empty."]
    if data.lstrip()[:1] in (b"<", b"{", b"["):
        return [*faults, "The body is HTML or JSON."]
    if data[:2] != b"\x1f\x8b" and data[0] & 7 >= 6:
        return [*faults, f"The body begins with a field of wire type {data[0] & 7}."]
    return faults + _faults(data, lambda message, _: _alloy(message))


def _faults(data: bytes, check: Callable[[ProtoMessage, bytes], Iterator[str]]) -> list[str]:
    try:
        raw = _unpacked(data)
        message = profile_class().FromString(raw)
        return list(check(message, raw))
    except _UnreadableError as error:
        return [str(error)]
    except DecodeError:
        return ["The protocol buffer is malformed."]


def _unpacked(data: bytes) -> bytes:
    raw = data
    if data[:2] == b"\x1f\x8b":
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            raw = unpacker.decompress(data, MAX_BYTES)
        except zlib.error as error:
            raise _UnreadableError(f"The gzip data is damaged: {error}.") from error
        if not unpacker.eof:
            raise _UnreadableError("The gzip data is cut off, or too much.")
        if unpacker.unused_data:
            raise _UnreadableError("There is something behind the gzip data.")
    if not raw:
        raise _UnreadableError("The profile is empty.")
    return raw


def _pprof(message: ProtoMessage, raw: bytes) -> Iterator[str]:
    if sum(number == _TIME_NANOS for number in _field_numbers(raw)) > 1:
        yield "Two profiles stand one behind the other: there are two times."
    yield from _strings(message)
    n_values = len(message.sample_type)
    if not n_values:
        yield "There are no sample types: every report says that there are no samples."
    mappings = yield from _ids("mapping", message.mapping)
    functions = yield from _ids("function", message.function)
    locations = yield from _ids("location", message.location)
    for location in message.location:
        if location.mapping_id and location.mapping_id not in mappings:
            yield f"Location {location.id} is of mapping {location.mapping_id}, which is not there."
        if any(line.function_id not in functions for line in location.line):
            yield f"Location {location.id} has a line without a function."
    for number, sample in enumerate(message.sample):
        if len(sample.value) != n_values:
            yield f"Sample {number} has {len(sample.value)} values for {n_values} types."
        if any(location_id not in locations for location_id in sample.location_id):
            yield f"Sample {number} has a location that is not there."
        if any(not (label.str or label.num or label.num_unit) for label in sample.label):
            yield f"Sample {number} has a label that is dropped, since it says nothing."


def _ids(what: str, items: Sequence[ProtoMessage]) -> Generator[str, None, set[int]]:
    """Ids that are 0 or stand there twice; the value of `yield from` is the set of all."""
    known: set[int] = set()
    for item in items:
        if item.id == 0:
            yield f"A {what} has the id 0."
        if item.id in known:
            yield f"The {what} {item.id} stands there twice."
        known.add(item.id)
    return known - {0}


def _strings(message: ProtoMessage) -> Iterator[str]:
    """Faults of the table of strings, and of what refers to it."""
    if not message.string_table or message.string_table[0]:
        yield "The table of strings does not begin with an empty one."
    size = len(message.string_table)
    bad = {index for index in _string_indexes(message) if not 0 <= index < size}
    if bad:
        yield f"There are {size} strings, and none with the number {min(bad)}."


def _string_indexes(message: ProtoMessage) -> Iterator[int]:
    for value_type in (*message.sample_type, message.period_type):
        yield from (value_type.type, value_type.unit)
    yield from message.comment
    yield from (message.drop_frames, message.keep_frames)
    yield from (message.default_sample_type, message.doc_url)
    for mapping in message.mapping:
        yield from (mapping.filename, mapping.build_id)
    for function in message.function:
        yield from (function.name, function.system_name, function.filename)
    for sample in message.sample:
        for label in sample.label:
            yield from (label.key, label.str, label.num_unit)


def _pyroscope(message: ProtoMessage, raw: bytes, now_s: float | None) -> Iterator[str]:
    if len(raw) > PYROSCOPE_MAX_BYTES:
        yield f"It has {len(raw)} bytes unpacked; more than 4 MiB are refused."
    if len(message.sample) > PYROSCOPE_MAX_SAMPLES:
        yield f"It has {len(message.sample)} samples; more than 16,000 are refused."
    yield from _strings(message)
    for number, text in enumerate(message.string_table):
        if len(text) > PYROSCOPE_MAX_TEXT_BYTES:
            yield f"String {number} is cut, it has {len(text)} bytes."
        try:
            text.decode()
        except UnicodeDecodeError:
            yield f"String {number} is no UTF-8."
    for value_type in message.sample_type:
        if "-" in _text(message, value_type.type):
            yield f"The sample type {_text(message, value_type.type)!r} has a hyphen."
    for what, items in (("location", message.location), ("function", message.function)):
        if any(item.id == 0 for item in items):
            yield f"A {what} has the id 0."
    # Older than 1970 is taken for "now", as is 0.
    if now_s is not None and message.time_nanos > 0:
        ahead_s = message.time_nanos / 1e9 - now_s
        if ahead_s > PYROSCOPE_MAX_AHEAD_S or -ahead_s > PYROSCOPE_MAX_AGE_S:
            yield f"Its time is {ahead_s:+.0f} s from now."
    for number, sample in enumerate(message.sample):
        if len(sample.label) > PYROSCOPE_MAX_LABELS:
            yield f"Sample {number} has {len(sample.label)} labels; more than 100 are refused."
        if len(sample.location_id) > PYROSCOPE_MAX_DEPTH:
            yield f"Sample {number} is cut, it has {len(sample.location_id)} locations."
        if not any(sample.value) or any(value < 0 for value in sample.value):
            yield f"Sample {number} is dropped, its values are {list(sample.value)}."


def _parca(message: ProtoMessage, name: str) -> Iterator[str]:
    for what, items in (
        ("mapping", message.mapping),
        ("location", message.location),
        ("function", message.function),
    ):
        wrong = next((i for i, item in enumerate(items, start=1) if item.id != i), None)
        if wrong is not None:
            yield f"The {what} in place {wrong} has the id {items[wrong - 1].id}."
    yield from _strings(message)
    period = message.period_type
    for value_type in message.sample_type:
        parts = (value_type.type, value_type.unit, period.type, period.unit)
        query = ":".join([name, *(_text(message, part) for part in parts)])
        query += ":delta" if message.duration_nanos else ""
        if not _METRIC_NAME.fullmatch(query) or query.count(":") != 4 + bool(
            message.duration_nanos
        ):
            yield f"Nobody can ask for {query!r}."
    yield from _references(message)
    for number, sample in enumerate(message.sample):
        if any(not label.key for label in sample.label):
            yield f"Sample {number} has a label without a key."


def _references(message: ProtoMessage) -> Iterator[str]:
    """Places in tables that are not there, if places are ids."""
    for location in message.location:
        if location.mapping_id > len(message.mapping):
            yield f"Location {location.id} is of mapping {location.mapping_id}, which is not there."
        if any(not 0 < line.function_id <= len(message.function) for line in location.line):
            yield f"Location {location.id} has a line without a function."
    for number, sample in enumerate(message.sample):
        if any(not 0 < place <= len(message.location) for place in sample.location_id):
            yield f"Sample {number} has a location that is not there."
        if len(sample.value) != len(message.sample_type):
            yield f"Sample {number} has {len(sample.value)} values."


def _alloy(message: ProtoMessage) -> Iterator[str]:
    if not message.time_nanos:
        yield "It has no time: the length of a delta is the difference of two."
    if len(message.sample_type) > ALLOY_MAX_VALUES:
        yield f"It has {len(message.sample_type)} sample types; there is room for four values."
    if _text(message, message.sample_type[-1].type if message.sample_type else 0) == "cpu":
        return  # scraped as a delta, with ?seconds=
    # Of cumulative profiles, a stack is known by its addresses and labels alone.
    addresses = {location.id: location.address for location in message.location}
    stacks = Counter(
        (
            tuple(addresses.get(location_id, 0) for location_id in sample.location_id),
            tuple(sorted((x.key, x.str, x.num, x.num_unit) for x in sample.label)),
        )
        for sample in message.sample
    )
    doubles = sum(1 for times in stacks.values() if times > 1)
    if doubles:
        yield f"{doubles} stacks have the same addresses and labels as others."
    if 0 in addresses.values():
        yield "A location has the address 0: stacks are distinguished by their addresses."


def _text(message: ProtoMessage, index: int) -> str:
    if not 0 <= index < len(message.string_table):
        return ""
    return str(message.string_table[index].decode("utf-8", "replace"))


def _field_numbers(raw: bytes) -> Iterator[int]:
    """The numbers of the fields of the outermost message, which was parsed already."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        match tag & 7:
            case 0:
                _, at = _varint(raw, at)
            case 1:
                at += 8
            case 2:
                size, at = _varint(raw, at)
                at += size
            case 5:
                at += 4
            case other:
                raise _UnreadableError(f"There is a field of wire type {other}.")
        yield tag >> 3


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(at, min(at + 10, len(raw))):
        number |= (raw[place] & 0x7F) << 7 * (place - at)
        if raw[place] < 0x80:
            return number, place + 1
    raise _UnreadableError("A number does not end.")
