"""Reading profiles: what pprof's own CheckValid refuses is refused by name, and nothing crashes."""

import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.export.pprof_schema import ProtoMessage, profile_class
from ebpfprof.profile import ValueType
from tests.unit.small_profile import GOLDEN, SMALL


def test_a_profile_that_is_not_gzipped_is_read() -> None:
    assert pprof.decode(GOLDEN) == pprof.decode(pprof.encode(SMALL))


def test_the_kind_comes_from_the_types_or_the_caller() -> None:
    data = pprof.encode(SMALL)
    assert pprof.decode(data).kind == "block"
    assert pprof.decode(data, kind="mutex").kind == "mutex"
    cpu = replace(
        SMALL,
        kind="cpu",
        sample_types=(ValueType("samples", "count"), ValueType("cpu", "nanoseconds")),
    )
    assert pprof.decode(pprof.encode(cpu)).kind == "cpu"


def broken(change: Callable[[ProtoMessage], object]) -> bytes:
    message = profile_class().FromString(GOLDEN)
    change(message)
    return bytes(message.SerializeToString())


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
    "samples without types": (broken(lambda m: m.ClearField("sample_type")), "2 values for 0"),
    "samples without types and values": (
        broken(lambda m: (m.ClearField("sample_type"), [s.ClearField("value") for s in m.sample])),
        "0 values for 0",
    ),
    "value missing": (broken(lambda m: m.sample[0].value.pop()), "1 values for 2"),
    "value too many": (broken(lambda m: m.sample[1].value.append(1)), "3 values for 2"),
    "sample in location 0": (broken(lambda m: m.sample[0].location_id.append(0)), "location, 0"),
    "location not there": (broken(delete("location", 0)), "location, 1"),
    "location id 0": (broken(set_("location[0].id", 0)), "location whose id, 0"),
    "location id twice": (broken(set_("location[1].id", 1)), "location whose id, 1"),
    "mapping id 0": (broken(set_("mapping[0].id", 0)), "mapping whose id, 0"),
    "mapping id twice": (broken(set_("mapping[1].id", 1)), "mapping whose id, 1"),
    "function id 0": (broken(set_("function[0].id", 0)), "function whose id, 0"),
    "function id twice": (broken(set_("function[1].id", 1)), "function whose id, 1"),
    "mapping not there": (broken(set_("location[0].mapping_id", 9)), "mapping that is not there"),
    "line without function": (
        broken(set_("location[0].line[1].function_id", 0)),
        "line without a function",
    ),
    "function not there": (broken(delete("function", 3)), "line without a function"),
    "no strings": (broken(lambda m: m.ClearField("string_table")), "string table"),
    "first string not empty": (broken(delete("string_table", 0)), "string table"),
    "string beyond the table": (broken(set_("function[0].name", 99)), "string 99"),
    "negative string": (broken(set_("mapping[0].filename", -1)), "string -1"),
    "system name beyond": (broken(set_("function[0].system_name", 99)), "string 99"),
    "comment beyond": (broken(lambda m: m.comment.append(99)), "string 99"),
    "type beyond": (broken(set_("period_type.unit", 99)), "string 99"),
    "label beyond": (broken(lambda m: m.sample[0].label.add(key=99, num=1)), "string 99"),
    "another kind of profile": (broken(set_("sample_type[1].type", 2)), "contentions, count"),
    "nothing": (b"", "string table"),
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
def test_broken_files_are_refused_by_name(data: bytes, fault: str) -> None:
    with pytest.raises(InvalidProfile, match=fault):
        pprof.decode(data)


def test_a_gzip_bomb_is_not_unpacked_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pprof, "MAX_DECODED_BYTES", 1 << 20)
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = compressor.compress(bytes(1 << 21)) + compressor.flush()
    # Whoever reads it all finds that its end is missing.
    bomb = bomb[:-9]
    with pytest.raises(InvalidProfile, match="larger than 1 MiB"):
        pprof.decode(bomb)
    with pytest.raises(InvalidProfile, match="larger than 1 MiB"):
        pprof.decode(bytes((1 << 20) + 1))


@given(st.binary(max_size=64), st.integers(0, len(GOLDEN)), st.integers(0, 64))
@settings(deadline=None)
def test_no_corruption_raises_anything_else(noise: bytes, at: int, cut: int) -> None:
    with suppress(InvalidProfile):
        pprof.decode(GOLDEN[:at] + noise + GOLDEN[at + cut :])


def test_labels_that_pprof_drops_are_dropped() -> None:
    data = broken(lambda m: m.sample[0].label.add(key=1))
    assert pprof.decode(data) == pprof.decode(GOLDEN)
