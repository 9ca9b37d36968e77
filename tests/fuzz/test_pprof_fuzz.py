"""Corrupt profiles: each one gets InvalidProfile or a profile that every format can write, soon."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from typing import Final

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import folded, formats, json_profile, pprof, speedscope
from ebpfprof.export.pprof.schema import profile_class
from ebpfprof.profile import delta
from ebpfprof.profile.model import Profile
from tests.fuzz.test_symbolizer_fuzz import limits
from tests.unit.export.small_profile import GOLDEN, SMALL

ROUNDS: Final = settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
NUMBERS: Final = st.sampled_from(
    (0, 1, 2, 3, 4, 15, 16, 17, 127, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
)
SIGNED: Final = NUMBERS.map(lambda number: number - (1 << 64) if number >> 63 else number)
TEXTS: Final = st.sampled_from(
    (
        b"",
        b"main.f",
        b"sync.(*Mutex).Unlock",
        b"runtime.chanrecv1",
        b"a;b\n c\x1b[31m</script>\xff",
        b"contentions",
        b"delay",
        b"bytes",
        b"nanoseconds",
    )
) | st.binary(max_size=12)


def read_and_write(data: bytes) -> None:
    """Read a profile; each format that knows its values can write it."""
    with suppress(InvalidProfile):  # a typed error is an answer, too
        write(pprof.decode(data))


def write(profile: Profile) -> None:
    json.loads(json_profile.encode(profile))
    text = formats.encode(profile, "text", hide_idle=True)
    text += formats.encode(profile, "text", sample_type=profile.sample_types[0].type)
    assert b"\x1b" not in text
    with suppress(InvalidProfile):  # negative values
        json.loads(speedscope.encode(profile))
    with suppress(InvalidProfile):  # negative values
        for line in folded.encode(profile).splitlines():
            assert int(line.rpartition(b" ")[2]) > 0
    with suppress(InvalidProfile):  # a sum that does not fit 64 bits
        assert not delta.difference(profile, profile).samples
        delta.merged([profile, profile])
        formats.encode_difference(profile, profile, "text")
        formats.encode_difference(profile, profile, "pprof")
    assert len(pprof.decode(pprof.encode(profile)).samples) == len(profile.samples)


@ROUNDS
@given(
    noise=st.binary(max_size=64),
    at=st.integers(0, len(GOLDEN)),
    cut=st.integers(0, 64),
    is_gzipped=st.booleans(),
)
@example(noise=b"", at=0, cut=0, is_gzipped=True)
def test_bytes_changed_anywhere(noise: bytes, at: int, cut: int, is_gzipped: bool) -> None:
    data = GOLDEN[:at] + noise + GOLDEN[at + cut :]
    with limits():
        read_and_write(gzip.compress(data) if is_gzipped else data)


@ROUNDS
@given(
    noise=st.binary(min_size=1, max_size=16),
    at=st.integers(0, 200),
    cut=st.integers(0, 40),
)
def test_bytes_of_the_gzip_stream_changed(noise: bytes, at: int, cut: int) -> None:
    data = pprof.encode(SMALL)
    with limits():
        read_and_write(data[:at] + noise + data[at + cut :])


FIELDS: Final = ("id", "mapping_id", "address", "memory_start", "filename", "name", "start_line")


@ROUNDS
@given(data=st.data())
def test_numbers_and_texts_changed(data: st.DataObject) -> None:
    """Well formed, so that the parser accepts it: wrong numbers and odd texts."""
    message = profile_class().FromString(GOLDEN)
    for _ in range(data.draw(st.integers(1, 4))):
        table = data.draw(st.sampled_from(("sample", "location", "function", "mapping", "rest")))
        if table == "rest":
            index = data.draw(st.integers(1, len(message.string_table) - 1))
            message.string_table[index] = data.draw(TEXTS)
            message.time_nanos = data.draw(SIGNED)
            message.duration_nanos = data.draw(SIGNED)
            message.period = data.draw(SIGNED)
            continue
        item = data.draw(st.sampled_from(list(getattr(message, table))))
        if table == "sample":
            column = data.draw(st.integers(0, len(item.value) - 1))
            item.value[column] = data.draw(SIGNED)
            item.location_id.extend(data.draw(st.lists(st.integers(0, 4), max_size=4)))
            item.label.add(
                key=data.draw(st.integers(0, 17)),
                str=data.draw(st.integers(0, 17)),
                num=data.draw(SIGNED),
                num_unit=data.draw(st.integers(0, 17)),
            )
            continue
        names = [field.name for field in item.DESCRIPTOR.fields if field.name in FIELDS]
        name = data.draw(st.sampled_from(names))
        is_signed = name in ("filename", "name", "start_line")
        setattr(item, name, data.draw(SIGNED if is_signed else NUMBERS))
        if table == "location":
            item.line.add(function_id=data.draw(st.integers(0, 5)), line=data.draw(SIGNED))
    with limits():
        read_and_write(message.SerializeToString())
