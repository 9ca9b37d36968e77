"""The rules of pprof, Pyroscope, Parca and Alloy: each on a profile that breaks it alone."""

import gzip
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ebpfprof.export import pprof as ours
from ebpfprof.export.proto_messages import ProtoMessage
from tests.profilerules import alloy, parca, pprof, pyroscope, violations
from tests.unit.export.pprof.messages import changed
from tests.unit.export.small_profile import GOLDEN, SMALL, field

Change = Callable[[ProtoMessage], Any]
NOW_S = SMALL.time_ns / 1e9


def text(message: ProtoMessage, value: bytes) -> int:
    """The number of a new string."""
    message.string_table.append(value)
    return len(message.string_table) - 1


def add_sample(message: ProtoMessage, **fields: object) -> None:
    message.sample.add(**{"location_id": [1], "value": [1, 1], **fields})


def add_labels(message: ProtoMessage, count: int) -> None:
    for number in range(count):
        message.sample[0].label.add(key=1, num=number + 1)


def swap_ids(items: Sequence[ProtoMessage]) -> None:
    items[0].id, items[1].id = items[1].id, items[0].id


def swap_mappings(message: ProtoMessage) -> None:
    swap_ids(message.mapping)
    for location in message.location:
        location.mapping_id = 2


def swap_locations(message: ProtoMessage) -> None:
    swap_ids(message.location)
    for location_id in (2, 1):
        message.sample[0].location_id.append(location_id)


def clear_sample_types(message: ProtoMessage) -> None:
    del message.sample_type[:]
    del message.sample[:]


def fill_samples(message: ProtoMessage, count: int) -> None:
    for number in range(count):
        add_sample(message, label=[{"key": 1, "num": number + 1}])


def deep(message: ProtoMessage) -> None:
    add_sample(message, location_id=[1] * 1001)


def same_addresses(message: ProtoMessage) -> None:
    message.location[2].address = message.location[0].address


def assign(path: str, value: int | bytes) -> Change:
    """Sets a field, e.g. "location[0].address"."""

    def change(message: ProtoMessage) -> None:
        *parents, last = path.replace("[", ".[").split(".")
        target = message
        for parent in parents:
            index = parent.startswith("[")
            target = target[int(parent[1:-1])] if index else getattr(target, parent)
        if last.startswith("["):
            target[int(last[1:-1])] = value
        else:
            setattr(target, last, value)

    return change


def test_written_profiles_break_no_rule() -> None:
    assert violations(ours.encode(SMALL), now_s=NOW_S) == []
    assert violations(GOLDEN, now_s=NOW_S) == []


# By pprof: profile.go and encode.go.
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (clear_sample_types, "no sample types"),
        (lambda m: m.sample[0].value.append(1), "Sample 0 has 3 values for 2 types."),
        (lambda m: m.sample[1].value.pop(), "Sample 1 has 1 values for 2 types."),
        (assign("sample[0].location_id[0]", 9), "Sample 0 has a location that is not there."),
        (assign("sample[0].location_id[0]", 0), "Sample 0 has a location that is not there."),
        (assign("mapping[1].id", 0), "A mapping has the id 0."),
        (assign("mapping[1].id", 1), "The mapping 1 stands there twice."),
        (assign("function[3].id", 0), "A function has the id 0."),
        (assign("function[3].id", 3), "The function 3 stands there twice."),
        (assign("location[0].id", 0), "A location has the id 0."),
        (assign("location[0].id", 2), "The location 2 stands there twice."),
        (assign("location[0].mapping_id", 3), "of mapping 3, which is not there."),
        (assign("location[0].line[1].function_id", 0), "has a line without a function."),
        (assign("location[0].line[1].function_id", 7), "has a line without a function."),
        (assign("string_table[0]", b"x"), "does not begin with an empty one."),
        (lambda m: m.string_table.__delitem__(slice(None)), "does not begin with an empty one."),
        (assign("sample_type[0].unit", 17), "none with the number 17."),
        (assign("period_type.type", 17), "none with the number 17."),
        (assign("comment[0]", -1), "none with the number -1."),
        (assign("drop_frames", 17), "none with the number 17."),
        (assign("keep_frames", 17), "none with the number 17."),
        (assign("default_sample_type", 17), "none with the number 17."),
        (assign("doc_url", 17), "none with the number 17."),
        (assign("mapping[0].filename", 17), "none with the number 17."),
        (assign("mapping[0].build_id", 17), "none with the number 17."),
        (assign("function[0].name", 17), "none with the number 17."),
        (assign("function[0].system_name", 17), "none with the number 17."),
        (assign("function[0].filename", 17), "none with the number 17."),
        (lambda m: m.sample[0].label.add(key=17, num=1), "none with the number 17."),
        (lambda m: m.sample[0].label.add(key=1, str=17), "none with the number 17."),
        (lambda m: m.sample[0].label.add(key=1, num_unit=17), "none with the number 17."),
        (lambda m: m.sample[0].label.add(key=1), "Sample 0 has a label that is dropped"),
    ],
)
def test_pprof_refuses_invalid_profiles(change: Change, fault: str) -> None:
    faults = pprof(changed(change))
    assert [each for each in faults if fault in each], faults


def test_pprof_accepts_odd_but_valid_profiles() -> None:
    for change in (
        lambda m: add_sample(m, value=[-1, -5]),
        lambda m: add_sample(m, location_id=[]),
        swap_mappings,
        assign("location[0].address", 0),
        assign("time_nanos", 0),
        lambda m: m.sample[0].label.add(key=1, num_unit=2),
    ):
        assert pprof(changed(change)) == []


def test_pprof_refuses_concatenated_profiles() -> None:
    assert any("two times" in fault for fault in pprof(GOLDEN + GOLDEN))
    assert any("two times" in fault for fault in pprof(GOLDEN + field(9, 5)))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "The profile is empty."),
        (gzip.compress(b""), "The profile is empty."),
        (b"\x1f\x8bnonsense", "The gzip data is damaged"),
        (gzip.compress(GOLDEN)[:-9], "The gzip data is cut off"),
        (gzip.compress(GOLDEN) + b"x", "something behind the gzip data"),
        (GOLDEN[:-1], "The protocol buffer is malformed."),
    ],
)
def test_all_readers_refuse_data_that_is_not_a_profile(data: bytes, fault: str) -> None:
    assert [each for each in pprof(data) if fault in each]
    assert len(violations(data)) >= 4


def test_a_gzip_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(65 << 20), compresslevel=1)
    assert pprof(bomb) == ["The gzip data is cut off, or too much."]


# By Pyroscope: validation of profiles, and normalization.
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda m: text(m, b"x" * (5 << 20)), "more than 4 MiB are refused."),
        (lambda m: fill_samples(m, 15_999), "It has 16001 samples"),
        (lambda m: add_labels(m, 101), "Sample 0 has 101 labels"),
        (deep, "Sample 2 is cut, it has 1001 locations."),
        (lambda m: text(m, b"x" * 65_536), "String 17 is cut, it has 65536 bytes."),
        (lambda m: text(m, b"\xff"), "String 17 is no UTF-8."),
        (assign("string_table[3]", b"de-lay"), "The sample type 'de-lay' has a hyphen."),
        (assign("string_table[0]", b"x"), "does not begin with an empty one."),
        (assign("function[0].filename", 17), "none with the number 17."),
        (assign("location[0].id", 0), "A location has the id 0."),
        (assign("function[0].id", 0), "A function has the id 0."),
        (lambda m: add_sample(m, value=[0, 0]), "Sample 2 is dropped, its values are [0, 0]."),
        (lambda m: add_sample(m, value=[1, -1]), "Sample 2 is dropped"),
        (assign("time_nanos", SMALL.time_ns - 3_601_000_000_000), "-3601 s from now."),
        (assign("time_nanos", SMALL.time_ns + 601_000_000_000), "+601 s from now."),
    ],
)
def test_pyroscope_refuses_invalid_profiles(change: Change, fault: str) -> None:
    faults = pyroscope(changed(change), now_s=NOW_S)
    assert [each for each in faults if fault in each], faults


def test_pyroscope_accepts_profiles_just_within_its_limits() -> None:
    for change in (
        lambda m: fill_samples(m, 15_998),
        lambda m: add_labels(m, 100),
        lambda m: text(m, b"x" * 65_535),
        lambda m: add_sample(m, location_id=[1] * 1000),
        lambda m: add_sample(m, value=[0, 1]),
        assign("time_nanos", SMALL.time_ns - 3_599_000_000_000),
        assign("time_nanos", SMALL.time_ns + 599_000_000_000),
        assign("time_nanos", 0),
    ):
        assert pyroscope(changed(change), now_s=NOW_S) == []
    assert pyroscope(GOLDEN) == []


# By Parca: ValidatePprofProfile, and what its queries can name.
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (swap_mappings, "The mapping in place 1 has the id 2."),
        (swap_locations, "The location in place 1 has the id 2."),
        (lambda m: swap_ids(m.function), "The function in place 1 has the id 2."),
        (assign("function[3].id", 5), "The function in place 4 has the id 5."),
        (lambda m: m.sample[0].label.add(num=1), "Sample 0 has a label without a key."),
        (assign("string_table[1]", b"con tentions"), "Nobody can ask for 'block:con tentions"),
        (assign("string_table[2]", b"co:unt"), "Nobody can ask for"),
        (assign("string_table[0]", b"x"), "does not begin with an empty one."),
        (assign("comment[0]", 17), "none with the number 17."),
        (assign("location[0].mapping_id", 3), "of mapping 3, which is not there."),
        (assign("location[0].line[0].function_id", 5), "has a line without a function."),
        (assign("sample[0].location_id[0]", 5), "Sample 0 has a location that is not there."),
        (lambda m: m.sample[0].value.append(1), "Sample 0 has 3 values."),
    ],
)
def test_parca_refuses_invalid_profiles(change: Change, fault: str) -> None:
    faults = parca(changed(change))
    assert [each for each in faults if fault in each], faults


def test_parca_accepts_a_missing_duration_on_request() -> None:
    assert parca(changed(assign("duration_nanos", 0))) == []
    assert parca(GOLDEN, name="process_cpu") == []
    assert parca(GOLDEN, name="my block") != []


# By Alloy: what it scrapes, and the delta that it makes of two scrapes.
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (assign("time_nanos", 0), "It has no time"),
        (same_addresses, "2 stacks have the same addresses and labels as others."),
        (assign("location[0].address", 0), "A location has the address 0"),
        (lambda m: [m.sample_type.add(type=1, unit=2) for _ in range(3)], "5 sample types"),
    ],
)
def test_alloy_reports_scrape_mistakes(change: Change, fault: str) -> None:
    def widened(message: ProtoMessage) -> None:
        add_sample(message, location_id=[3, 2], label=[{"key": 1, "num": 1}])
        add_sample(message, location_id=[1, 2], label=[{"key": 1, "num": 1}])
        assert alloy(bytes(message.SerializeToString())) == []
        change(message)

    faults = alloy(changed(widened))
    assert [each for each in faults if fault in each], faults


def test_alloy_makes_no_delta_of_a_cpu_profile() -> None:
    def on_cpu(message: ProtoMessage) -> None:
        message.location[0].address = 0
        message.sample_type[1].type = text(message, b"cpu")

    assert alloy(changed(on_cpu)) == []


@pytest.mark.parametrize(
    ("data", "content_type", "fault"),
    [
        (GOLDEN, "text/plain; charset=utf-8", "The content type is"),
        (GOLDEN, "", "The content type is"),
        (b"", "application/octet-stream", "The body is empty."),
        (b" <html>", "application/octet-stream", "The body is HTML or JSON."),
        (b'{"error": 1}', "application/octet-stream", "The body is HTML or JSON."),
        (b"[1]", "application/octet-stream", "The body is HTML or JSON."),
        (b"\x0fabc", "application/octet-stream", "a field of wire type 7."),
        (b"n", "application/octet-stream", "a field of wire type 6."),
    ],
)
def test_alloy_refuses_invalid_profiles(data: bytes, content_type: str, fault: str) -> None:
    faults = alloy(data, content_type=content_type)
    assert [each for each in faults if fault in each], faults


def test_alloy_accepts_answers_of_a_go_server() -> None:
    assert alloy(ours.encode(SMALL), content_type="application/octet-stream") == []


def test_faults_name_the_reader_that_refuses() -> None:
    faults = violations(changed(assign("string_table[0]", b"x")))
    assert {fault.partition(":")[0] for fault in faults} == {"pprof", "Pyroscope", "Parca"}
