"""Ways in through profiles that `report` and `diff` read, and all that they write."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import folded, formats, json_profile, pprof, speedscope
from ebpfprof.export.tables import report
from ebpfprof.profile.behaviour import IdleBehaviour
from ebpfprof.profile.idle_comments import idle_comments
from ebpfprof.profile.model import (
    Frame,
    Kind,
    Label,
    Location,
    Lock,
    Profile,
    Sample,
    ValueType,
)
from ebpfprof.profile.wait_histogram import WaitHistogram
from tests.fuzz.driver import Parser
from tests.fuzz.test_pprof_fuzz import write
from tests.fuzz.ways.text import NAMES, check_shown
from tests.unit.export.profiles import nasty
from tests.unit.export.small_profile import GOLDEN, MAIN, SMALL

_COVERS = (
    *("flamegraph", "folded", "formats", "frames", "json_profile", "kinds", "speedscope"),
    *("pprof.lengths", "pprof.reader", "pprof.wire", "pprof.writer", "tables.functions"),
    *("tables.largest", "tables.operations", "tables.quantities", "tables.report"),
)

_IDLE: Final = IdleBehaviour(2, 0.998, "timer")
_KINDS: Final[tuple[Kind, ...]] = ("block", "cpu", "")


@cache
def profile_seeds() -> Sequence[bytes]:
    types = (ValueType("samples", "count"), ValueType("cpu", "nanoseconds"))
    cpu = replace(nasty("cpu"), sample_types=types, period_type=types[1])
    waits = replace(SMALL, samples=tuple(replace(e, behaviour=_IDLE) for e in SMALL.samples))
    idle = replace(SMALL, comments=idle_comments("block", waits.samples))
    lengths = WaitHistogram.of([100, 2_000, 2_000, 300_000_000])
    long = replace(SMALL, samples=tuple(replace(e, lengths=lengths) for e in SMALL.samples))
    whole = (nasty(), nasty("mutex"), cpu, idle, long, replace(long, has_length_labels=True))
    found = [gzip.decompress(pprof.encode(each, keeps_lengths=True)) for each in whole]
    return GOLDEN, *found


def ask_profile(data: bytes) -> None:
    profile = pprof.decode(data)
    write(profile)
    has_color = bool(zlib.crc32(data) & 1)
    check_shown(report.render(profile, width=80, color=has_color), has_color=has_color)
    check_page(profile)


def check_page(profile: Profile) -> None:
    """The page is one script of ours and two elements of data, whatever the names are."""
    name = profile.comments[0] if profile.comments else ""
    lock = Lock(0xC000, name, name, profile.samples, profile.samples, 1, 2)
    page = formats.encode(profile, "html", locks=(lock,)).decode()
    lower = page.lower()
    assert lower.count("<script") == 3
    assert lower.count("</script") == 3
    assert page.count("<!--") == 0
    assert "<title>" in page.partition("<script")[0]
    for data in ("profile", "summary"):
        _, found, rest = page.partition(f'<script type="application/json" id="{data}">')
        assert found
        json.loads(rest.partition("</script>")[0])


def ask_compressed(data: bytes) -> None:
    pprof.decode(data)


@cache
def compressed_seeds() -> Sequence[bytes]:
    packed = [gzip.compress(seed, mtime=0) for seed in profile_seeds()]
    return (*packed, packed[0] + packed[0], gzip.compress(bytes(1 << 14), mtime=0))


def ask_names(data: bytes) -> None:
    """The input is each name of a recorded profile: no format may fail."""
    text = data.decode("utf-8", "surrogateescape")
    odd = Location(1, replace(MAIN, filename=text), (Frame(text, text, 7), Frame("a;b", text, 1)))
    sample = Sample((odd,), (1, 2), (Label(text, text), Label("n", 3, text)))
    # Writing all takes milliseconds: each input gets one kind of profile, with or without colour.
    way = zlib.crc32(data)
    kind = _KINDS[way % len(_KINDS)]
    types = SMALL.sample_types if kind else (ValueType(text, text), ValueType("b", text))
    profile = replace(SMALL, kind=kind, samples=(sample,), sample_types=types, comments=(text,))
    found = pprof.decode(pprof.encode(profile))
    assert len(found.samples) == 1
    json.loads(json_profile.encode(profile))
    json.loads(speedscope.encode(profile))
    (line,) = folded.encode(profile).split(b"\n")[:-1]
    assert line.count(b";") == 1
    assert line.decode().isprintable()
    if way // len(_KINDS) & 1:
        check_shown(formats.encode(profile, "text").decode())
    else:
        check_shown(report.render(profile, width=60, color=True), has_color=True)
    check_page(profile)


PROFILES = (
    Parser(
        "profiles",
        (
            *(f"ebpfprof.export.{name}" for name in _COVERS),
            *("ebpfprof.profile.idle_comments", "ebpfprof.profile.operations"),
            "ebpfprof.profile.length_labels",
        ),
        ask_profile,
        profile_seeds,
        allowed=(InvalidProfile,),
    ),
    Parser(
        "compressed-profiles",
        ("ebpfprof.export.pprof.reader", "ebpfprof.export.pprof.wire"),
        ask_compressed,
        compressed_seeds,
        allowed=(InvalidProfile,),
    ),
    Parser(
        "profile-names",
        ("ebpfprof.export.folded", "ebpfprof.export.speedscope"),
        ask_names,
        lambda: NAMES,
        allowed=(),
        share=40,
    ),
)
