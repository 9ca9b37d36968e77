"""Ways in through files of the ring, whose headers say of whom they are and how exact."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Final

from ebpfprof.errors import InvalidProfile
from ebpfprof.export.tables import report
from ebpfprof.profile.delta import merged
from ebpfprof.ring.contents import MAX_HEADER, facts, packed, unpacked
from ebpfprof.ring.folder import path_of
from tests.fuzz.driver import Parser
from tests.fuzz.ways.text import check_shown
from tests.unit.export.small_profile import SMALL
from tests.unit.ring.test_contents import END_NS, PROCESS, START_NS, estimated

_FIXED: Final = 10


@cache
def file_seeds() -> Sequence[bytes]:
    return packed(estimated(SMALL), PROCESS, START_NS, END_NS), packed(
        SMALL, PROCESS, START_NS, END_NS
    )


def ask_file(data: bytes) -> None:
    about, profile = unpacked(data)
    assert facts(data[:MAX_HEADER]) == about
    assert 0 <= about.start_ns <= about.end_ns < 1 << 63
    hour, name = path_of(
        about.start_ns, about.process.identity.service, about.process.pid, "block"
    ).split("/")
    assert name.isprintable()
    assert not hour.startswith(".")
    twice = merged([profile, profile])
    check_shown(report.render(twice, width=80, color=False), has_color=False)


@cache
def facts_seeds() -> Sequence[bytes]:
    """The facts of files, unpacked, so that changes hit what is read."""
    found = []
    for data in file_seeds():
        length = int.from_bytes(data[_FIXED + 4 : _FIXED + 6], "little")
        found.append(zlib.decompress(data[_FIXED + 6 : _FIXED + 6 + length]))
    assert all(one != other for one, other in pairwise(found))
    assert [json.loads(each)["kind"] for each in found] == ["block", "block"]
    return found


def ask_facts(data: bytes) -> None:
    text = zlib.compress(data, level=1)
    whole = file_seeds()[0]
    extra = int.from_bytes(whole[_FIXED : _FIXED + 2], "little")
    field = b"Eb" + struct.pack("<H", len(text)) + text
    header = whole[:_FIXED] + struct.pack("<H", len(field)) + field
    ask_file(header + whole[_FIXED + 2 + extra :])


_COVERS: Final = tuple(f"ebpfprof.ring.{name}" for name in ("contents", "account", "typed"))

RING: Final = (
    Parser(
        "ring-files",
        (*_COVERS, "ebpfprof.ring.folder"),
        ask_file,
        file_seeds,
        allowed=(InvalidProfile,),
    ),
    Parser("ring-facts", _COVERS, ask_facts, facts_seeds, allowed=(InvalidProfile,)),
)
