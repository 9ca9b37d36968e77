"""The pprof exporter: exact bytes, ids, order, and round trips through our own reader."""

import gzip
import json
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.export import pprof
from ebpfprof.profile.model import (
    Frame,
    Label,
    Location,
    Mapping,
    Profile,
    Sample,
)
from ebpfprof.profile.validate import check
from ebpfprof.profilers.waits.kinds import BLOCK
from tests.unit.export.small_profile import (
    GOLDEN,
    LOCK,
    MAIN,
    SMALL,
    UNKNOWN,
    WORK,
    message_of,
    strings_of,
)

ROOT = Path(__file__).parents[4]


def test_the_bytes_equal_the_golden_file() -> None:
    assert gzip.decompress(pprof.encode(SMALL)) == GOLDEN


def test_the_gzip_header_holds_no_time_and_no_name() -> None:
    header = pprof.encode(SMALL)[:10]
    assert header[:3] == b"\x1f\x8b\x08"
    assert header[3] == 0, "no flags, so no name"
    assert header[4:8] == bytes(4), "no time"
    assert header[8] == 4, "the fastest level"


def test_stacks_are_sorted_by_delay() -> None:
    samples = [Sample((replace(WORK, address=0x402000 + n),), (n, n % 7)) for n in range(1, 50)]
    profile = replace(SMALL, samples=tuple(samples))
    expected = pprof.encode(profile)
    delays = [sample.value[1] for sample in message_of(profile).sample]
    assert delays == sorted(delays, reverse=True)
    random.Random(1).shuffle(samples)
    assert pprof.encode(replace(SMALL, samples=tuple(samples))) == expected


def test_ids_are_sequential_and_equal_objects_share_one() -> None:
    copies = [
        Sample((replace(LOCK), replace(WORK, mapping=replace(MAIN))), (n, n)) for n in (1, 2, 3)
    ]
    message = message_of(replace(SMALL, samples=tuple(copies)))
    assert [item.id for item in message.mapping] == [1, 2]
    assert [item.id for item in message.location] == [1, 2]
    assert [item.id for item in message.function] == [1, 2, 3]
    assert [list(item.location_id) for item in message.sample] == [[1, 2]] * 3


def test_functions_of_equal_name_in_two_files_stay_separate() -> None:
    other = replace(WORK, address=1, frames=(Frame("main.work", "/src/other.go", 12, 10),))
    message = message_of(replace(SMALL, samples=(Sample((WORK, other), (1, 1)),)))
    assert len(message.function) == 2


def test_the_string_table_begins_with_the_empty_string_and_has_each_once() -> None:
    strings = strings_of(message_of(SMALL))
    assert strings[0] == ""
    assert len(set(strings)) == len(strings)


def test_go_sets_no_default_sample_type_and_no_frame_filters() -> None:
    message = message_of(SMALL)
    assert message.default_sample_type == 0
    assert (message.drop_frames, message.keep_frames, message.doc_url) == (0, 0, 0)


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ((WORK,), [True, False]),
        ((WORK, UNKNOWN), [True, False]),
        ((WORK, replace(UNKNOWN, frames=WORK.frames)), [True, True]),
        ((WORK, replace(WORK, address=0x400001, frames=())), [False, False]),
        ((replace(WORK, address=0x400001, frames=()), WORK), [False, False]),
        ((), [False, False]),
    ],
)
def test_has_functions_is_set_if_all_addresses_of_a_mapping_have_names(
    stack: tuple[Location, ...], expected: list[bool]
) -> None:
    message = message_of(replace(SMALL, samples=(Sample(stack, (1, 1)),)))
    assert [item.has_functions for item in message.mapping] == expected


def test_a_mapping_known_only_from_a_location_is_written() -> None:
    message = message_of(replace(SMALL, mappings=()))
    assert [item.memory_start for item in message.mapping] == [MAIN.start]


def test_the_profile_written_is_the_profile_read() -> None:
    by_delay = tuple(sorted(SMALL.samples, key=lambda sample: -sample.values[1]))
    assert pprof.decode(pprof.encode(SMALL)) == replace(SMALL, samples=by_delay)


def test_strict_readers_take_names_that_are_not_utf8() -> None:
    odd = b"/src/\xff\xfe.go".decode("utf-8", "surrogateescape")
    stack = (replace(WORK, frames=(Frame("main.work", odd, 1),)),)
    message = message_of(replace(SMALL, samples=(Sample(stack, (1, 1)),)))
    assert "/src/\\udcff\\udcfe.go" in strings_of(message)


ADDRESSES = st.integers(1, (1 << 64) - 1)
INT64 = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
LINES = st.integers(0, (1 << 63) - 1)
NAMES = st.text(min_size=1, max_size=8)
FRAMES = st.lists(
    st.builds(Frame, function=NAMES, file=st.text(max_size=8), line=LINES, start_line=LINES),
    max_size=3,
).map(tuple)
MAPPINGS = st.tuples(ADDRESSES, ADDRESSES).filter(lambda pair: pair[0] != pair[1])
LABELS = st.one_of(
    st.builds(Label, key=NAMES, value=NAMES),
    st.builds(Label, key=NAMES, value=INT64, unit=NAMES),
)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    mappings = [
        Mapping(min(pair), max(pair), draw(ADDRESSES), draw(st.text(max_size=8)), draw(NAMES))
        for pair in draw(st.lists(MAPPINGS, max_size=3, unique_by=min))
    ]
    locations = []
    for _ in range(draw(st.integers(0, 5))):
        mapping = draw(st.sampled_from([None, *mappings]))
        inside = st.integers(mapping.start, mapping.limit - 1) if mapping else ADDRESSES
        locations.append(Location(draw(inside), mapping, draw(FRAMES)))
    stacks = st.lists(st.sampled_from(locations), max_size=4) if locations else st.just([])
    samples = st.builds(
        Sample,
        locations=stacks.map(tuple),
        values=st.tuples(INT64, INT64),
        labels=st.lists(LABELS, max_size=2).map(tuple),
    )
    return BLOCK.make_profile(
        draw(st.lists(samples, max_size=5)),
        mappings,
        time_ns=draw(LINES),
        duration_ns=draw(LINES),
        comments=draw(st.lists(st.text(max_size=8), max_size=2)),
    )


@given(profiles())
@settings(deadline=None)
def test_every_sound_profile_is_read_as_it_was_written(profile: Profile) -> None:
    of_one_each = {(sample.locations, sample.labels): sample for sample in profile.samples}
    profile = replace(profile, samples=tuple(of_one_each.values()))
    check(profile)
    read = pprof.decode(pprof.encode(profile))
    assert Counter(read.samples) == Counter(profile.samples)
    assert replace(read, samples=()) == replace(profile, samples=())
    assert pprof.encode(read) == pprof.encode(profile)


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "import hashlib; from tests.unit.export.small_profile import SMALL, pprof;"
        "print(hashlib.sha256(pprof.encode(SMALL)).hexdigest())"
    )
    assert run_python(code, PYTHONHASHSEED="1") == run_python(code, PYTHONHASHSEED="2")


def test_a_second_profile_proto_in_the_process_does_not_clash() -> None:
    code = """
from google.protobuf import descriptor_pb2, descriptor_pool
other = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles")
other.message_type.add(name="Profile").field.add(
    name="sample_type", number=9, type=1, label=1)
pool = descriptor_pool.Default()
pool.AddSerializedFile(other.SerializeToString())
from tests.unit.export.small_profile import SMALL, pprof
assert pprof.decode(pprof.encode(SMALL)).sample_types == SMALL.sample_types
print(pool.FindMessageTypeByName("perftools.profiles.Profile").fields[0].number)
"""
    assert run_python(code) == "9\n"


def test_protobuf_is_imported_only_when_a_profile_is_written() -> None:
    code = """
import json, sys
import ebpfprof.export.pprof as pprof
from ebpfprof.profilers.waits.kinds import BLOCK
before = "google.protobuf" in sys.modules
pprof.encode(BLOCK.make_profile( [], [], time_ns=0, duration_ns=0))
print(json.dumps([before, "google.protobuf" in sys.modules]))
"""
    assert json.loads(run_python(code)) == [False, True]
