"""Reading profiles: what pprof's own CheckValid refuses is refused by name, and nothing crashes."""

import gzip
import operator
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.export.pprof import reader, wire
from ebpfprof.export.proto_messages import ProtoMessage
from ebpfprof.profile.model import Frame, Location, Profile, Sample, ValueType
from tests.unit.export.pprof.messages import changed
from tests.unit.export.small_profile import GOLDEN, MAIN, SMALL, WORK, field, numbers, packed


def test_a_profile_that_is_not_gzipped_is_read() -> None:
    assert pprof.decode(GOLDEN) == pprof.decode(pprof.encode(SMALL))


def test_the_kind_comes_from_the_types_or_the_caller() -> None:
    data = pprof.encode(SMALL)
    assert pprof.decode(data).kind == "block"
    assert pprof.decode(data, kind="mutex").kind == "mutex"
    assert pprof.decode(pprof.encode(of_types("samples", "cpu"))).kind == "cpu"
    assert pprof.decode(pprof.encode(of_types("goroutines", "waiting"))).kind == "open"
    assert pprof.decode(pprof.encode(of_types("alloc_space", "inuse_space"))).kind == ""


def of_types(*names: str) -> Profile:
    return replace(SMALL, sample_types=tuple(ValueType(name, "count") for name in names))


UNLOCKS = (
    "sync.(*Mutex).Unlock",
    "sync.(*RWMutex).RUnlock",
    "internal/sync.(*Mutex).Unlock",
    "sync.(*Mutex).unlockSlow",
    "runtime.unlock",
    "runtime.unlock2",
    "runtime._LostContendedRuntimeLock",
)


@pytest.mark.parametrize("function", UNLOCKS)
def test_a_profile_of_releases_is_a_mutex_profile(function: str) -> None:
    unlock = Location(0x409000, MAIN, (Frame(function, "/go/x.go", 1),))
    releases = replace(SMALL, samples=(Sample((unlock, WORK), (1, 1)),))
    assert pprof.decode(pprof.encode(releases)).kind == "mutex"
    mixed = replace(SMALL, samples=(*SMALL.samples, *releases.samples))
    assert pprof.decode(pprof.encode(mixed)).kind == "block"


@pytest.mark.parametrize("function", ["main.unlock", "sync.(*Mutex).Lock", "a.io/sync.Unlock"])
def test_other_leaf_functions_make_no_mutex_profile(function: str) -> None:
    leaf = Location(0x409000, MAIN, (Frame(function, "/go/x.go", 1),))
    waits = replace(SMALL, samples=(Sample((leaf, WORK), (1, 1)),))
    assert pprof.decode(pprof.encode(waits)).kind == "block"


def set_(path: str, value: int) -> Callable[[ProtoMessage], None]:
    """Set e.g. location[0].line[1].function_id."""

    def change(message: ProtoMessage) -> None:
        *parents, last = path.split(".")
        for part in parents:
            name, _, index = part.partition("[")
            message = getattr(message, name)
            message = message[int(index[:-1])] if index else message
        assert getattr(message, last) != value, "the change must change something"
        setattr(message, last, value)

    return change


def delete(name: str, index: int) -> Callable[[ProtoMessage], None]:
    def change(message: ProtoMessage) -> None:
        del getattr(message, name)[index]

    return change


# profile.go's CheckValid, and the faults of its decoder, one by one.
BROKEN: dict[str, tuple[bytes, str]] = {
    "samples without types": (
        changed(lambda m: m.ClearField("sample_type")),
        "2 values for 0",
    ),
    "samples without types and values": (
        changed(lambda m: (m.ClearField("sample_type"), [s.ClearField("value") for s in m.sample])),
        "0 values for 0",
    ),
    "value missing": (changed(lambda m: m.sample[0].value.pop()), "1 values for 2"),
    "value too many": (changed(lambda m: m.sample[1].value.append(1)), "3 values for 2"),
    "sample in location 0": (
        changed(lambda m: m.sample[0].location_id.append(0)),
        "location, 0",
    ),
    "location not there": (changed(delete("location", 0)), "location, 1"),
    "location id 0": (changed(set_("location[0].id", 0)), "location whose id, 0"),
    "location id twice": (changed(set_("location[1].id", 1)), "location whose id, 1"),
    "mapping id 0": (changed(set_("mapping[0].id", 0)), "mapping whose id, 0"),
    "mapping id twice": (changed(set_("mapping[1].id", 1)), "mapping whose id, 1"),
    "function id 0": (changed(set_("function[0].id", 0)), "function whose id, 0"),
    "function id twice": (changed(set_("function[1].id", 1)), "function whose id, 1"),
    "mapping not there": (
        changed(set_("location[0].mapping_id", 9)),
        "mapping that does not exist",
    ),
    "line without function": (
        changed(set_("location[0].line[1].function_id", 0)),
        "line without a function",
    ),
    "function not there": (changed(delete("function", 3)), "line without a function"),
    "no strings": (changed(lambda m: m.ClearField("string_table")), "string table"),
    "first string not empty": (changed(delete("string_table", 0)), "string table"),
    "string beyond the table": (changed(set_("function[0].name", 99)), "string 99"),
    "negative string": (changed(set_("mapping[0].filename", -1)), "string -1"),
    "system name beyond": (changed(set_("function[0].system_name", 99)), "string 99"),
    "comment beyond": (changed(lambda m: m.comment.append(99)), "string 99"),
    "type beyond": (changed(set_("period_type.unit", 99)), "string 99"),
    "label beyond": (changed(lambda m: m.sample[0].label.add(key=99, num=1)), "string 99"),
    "no types, no samples": (
        changed(lambda m: (m.ClearField("sample_type"), m.ClearField("sample"))),
        "no sample types",
    ),
    "nothing": (b"", "empty"),
    "nothing in gzip": (gzip.compress(b""), "string table"),
    "text": (b"hello, world", "malformed"),
    "truncated message": (GOLDEN[:-1], "malformed"),
    "truncated gzip": (pprof.encode(SMALL)[:-9], "damaged"),
    "gzip header only": (b"\x1f\x8b", "damaged"),
    "gzip of another method": (b"\x1f\x8b\x09" + bytes(20), "damaged"),
    "gzip with a wrong checksum": (
        pprof.encode(SMALL)[:-8] + bytes(4) + pprof.encode(SMALL)[-4:],
        "damaged",
    ),
    "gzip with garbage inside": (gzip.compress(GOLDEN)[:10] + b"\xff" * 50, "damaged"),
    "gzip with garbage behind": (pprof.encode(SMALL) + b"garbage", "damaged"),
}


@pytest.mark.parametrize(("data", "fault"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_are_refused_with_the_reason(data: bytes, fault: str) -> None:
    with pytest.raises(InvalidProfile, match=fault):
        pprof.decode(data)


def test_a_gzip_bomb_is_not_unpacked_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_DECODED_BYTES", 1 << 20)
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = compressor.compress(bytes(64 << 20)) + compressor.flush()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidProfile, match="larger than 1 MiB"):
            pprof.decode(bomb)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20
    # A reader that goes on to the end finds it missing.
    bomb = bomb[:-9]
    with pytest.raises(InvalidProfile, match="larger than 1 MiB"):
        pprof.decode(bomb)
    with pytest.raises(InvalidProfile, match="larger than 1 MiB"):
        pprof.decode(bytes((1 << 20) + 1))


OTHERS = {
    "block text": (b"--- contention:\ncycles/second=2600037637\n", "old text form"),
    "mutex text": (b"--- mutex:\ncycles/second=1\n", "without debug="),
    "heap text": (b"heap profile: 1: 2 [3: 4] @ heap/1048576\n", "old text form"),
    "goroutine text": (b"goroutine profile: total 9\n", "old text form"),
    "stacks": (b"goroutine 30 [chan receive, 2 minutes]:\nmain.f()\n", "old text form"),
    "gzipped text": (gzip.compress(b"threadcreate profile: total 1\n"), "old text form"),
    "gperftools": (b"".join(n.to_bytes(8, "little") for n in (0, 3, 0, 10000, 0)), "gperftools"),
    "trace": (b"go 1.26 trace\0\0\0", "go tool trace"),
    "perf": (b"PERFILE2" + bytes(100), "perf report"),
    "program": (b"\x7fELF\x02\x01\x01", "a program"),
    "page": (b"<!DOCTYPE html>", "web page"),
    "json": (b'{"format":"ebpfprof-profile-1"}', "JSON"),
    "a profile of Go's text": (b"404 page not found\n", "malformed"),
}


@pytest.mark.parametrize(("data", "advice"), OTHERS.values(), ids=OTHERS.keys())
def test_files_mistaken_for_profiles_are_refused_with_advice(data: bytes, advice: str) -> None:
    with pytest.raises(InvalidProfile, match=advice):
        pprof.decode(data)


def test_concatenated_gzip_streams_are_one_file() -> None:
    half = len(GOLDEN) // 2
    data = gzip.compress(GOLDEN[:half]) + gzip.compress(GOLDEN[half:])
    assert pprof.decode(data) == pprof.decode(GOLDEN)
    with pytest.raises(InvalidProfile, match="more than 64 gzip files"):
        pprof.decode(gzip.compress(GOLDEN) + gzip.compress(b"") * 64)


def test_several_profiles_in_one_file_are_refused_as_by_pprof() -> None:
    with pytest.raises(InvalidProfile, match="several profiles"):
        pprof.decode(pprof.encode(SMALL) * 2)


def test_names_that_are_not_utf8_are_read() -> None:
    data = changed(lambda m: m.string_table.__setitem__(12, b"main.\xff\xfe"))
    names = {f.function for s in pprof.decode(data).samples for x in s.locations for f in x.frames}
    assert "main.\ufffd\ufffd" in names


def repeated(number: int, content: bytes, count: int) -> bytes:
    return GOLDEN + field(number, content) * count


def test_huge_profiles_are_refused_with_the_exceeded_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_ITEMS", 2000)
    monkeypatch.setattr(reader, "MAX_DISTINCT", 1000)
    monkeypatch.setattr(reader, "MAX_FRAMES", 900)
    stack = field(2, field(1, packed(*[1] * 250)) + field(2, packed(1, 1)))
    claims = {
        "more than 2000 entries": [
            repeated(2, b"", 2000),
            repeated(99, b"", 2000),
            GOLDEN + (field(2, b"") + field(99, b"")) * 1000,
        ],
        "more than 1000 different entries": [
            repeated(6, b"", 1000),
            repeated(4, b"", 1000),
            GOLDEN + b"".join(field(2, field(1, packed(n))) for n in range(1000)),
            GOLDEN + field(2, field(3, b"") * 1000),
            GOLDEN + field(4, numbers(f1=99) + field(4, b"") * 1000),
        ],
        "more than 900 frames": [GOLDEN + stack + field(2, field(1, packed(*[1] * 249)) + VALUES)],
        "more than 16384 frames": [GOLDEN + field(2, field(1, packed(*[1] * 16385)))],
        "more than 64 values": [GOLDEN + field(2, field(2, packed(*[1] * 65)))],
        "64 sample types": [repeated(1, b"", 65)],
        "4096 comments": [GOLDEN + field(13, packed(*[0] * 4097))],
        "field of the profile is huge": [
            GOLDEN + field(number, bytes((1 << 20) + 1)) for number in (2, 4, 6, 13, 99)
        ],
        "comments or types are huge": [GOLDEN + field(13, bytes(1 << 19)) * 2],
    }
    for message, files in claims.items():
        for data in files:
            with pytest.raises(InvalidProfile, match=message):
                pprof.decode(data)
    assert len(pprof.decode(GOLDEN + stack * 1500).samples) == 3


VALUES = field(2, packed(1, 1))


def test_samples_of_equal_stacks_are_added_up() -> None:
    """Also where they don't follow on one another, or are not packed alike."""
    one = field(2, field(1, packed(1, 2)) + VALUES)
    other = field(2, field(1, packed(2, 1)) + field(2, packed(2, 5)))
    unpacked = field(2, numbers(f1=1) + numbers(f1=2) + numbers(f2=10) + numbers(f2=20))
    labelled = field(2, field(1, packed(1, 2)) + VALUES + field(3, numbers(f1=1, f2=2)))
    data = GOLDEN + one * 3 + other + one + unpacked + labelled + other
    known = {(s.locations, s.labels): s.values for s in pprof.decode(GOLDEN).samples}
    assert len(known) == 2
    added = []
    for sample in pprof.decode(data).samples:
        before = known.get((sample.locations, sample.labels), (0, 0))
        added.append(tuple(map(operator.sub, sample.values, before)))
    assert added == [(14, 24), (0, 0), (4, 10), (1, 1)]


def test_sums_beyond_64_bits_are_refused() -> None:
    most = field(2, field(1, packed(2, 1)) + field(2, packed(1, (1 << 63) - 1)))
    assert pprof.decode(GOLDEN + most).samples[-1].values == (1, (1 << 63) - 1)
    with pytest.raises(InvalidProfile, match="more than 64 bits"):
        pprof.decode(GOLDEN + most * 2)


SMALL_FILES_THAT_CLAIM_MUCH = {
    "equal samples": lambda: field(2, field(1, packed(1, 2)) + VALUES) * 3_900_000,
    "two samples in turn": lambda: (
        (field(2, field(1, packed(1, 2)) + VALUES) + field(2, VALUES)) * 250_000
    ),
    "nothing that is known": lambda: field(99, bytes(200_000)) * 1200,
}


@pytest.mark.parametrize(
    "claim", SMALL_FILES_THAT_CLAIM_MUCH.values(), ids=SMALL_FILES_THAT_CLAIM_MUCH.keys()
)
def test_memory_grows_with_distinct_entries_only(
    claim: Callable[[], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "small.pb.gz"
    path.write_bytes(gzip.compress(GOLDEN + claim(), compresslevel=9))
    assert path.stat().st_size < 300_000
    # The command by itself takes about 45 MB of addresses.
    limiting = ("/usr/bin/prlimit", f"--as={120 << 20}")
    done = subprocess.run(
        [*limiting, sys.executable, "-m", "ebpfprof", "diff", path, path, "-f", "json"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"main.work" in done.stdout


def test_inlined_frames_count_for_the_depth() -> None:
    lines = field(4, numbers(f1=1)) * 200
    location = field(4, numbers(f1=77) + lines)
    sample = field(2, field(1, packed(*[77] * 82)) + field(2, packed(1, 1)))
    with pytest.raises(InvalidProfile, match="more than 16384 frames"):
        pprof.decode(GOLDEN + location + sample)
    sample = field(2, field(1, packed(*[77] * 81)) + field(2, packed(1, 1)))
    pprof.decode(GOLDEN + location + sample)


def test_labels_that_pprof_drops_are_dropped() -> None:
    data = changed(lambda m: m.sample[0].label.add(key=1))
    assert pprof.decode(data) == pprof.decode(GOLDEN)
