"""The text of ?debug=1: shape and columns as Go's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.profile.model import Frame, Location, Profile, Sample, ValueType
from ebpfprof.profilers.registry import kind_named
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.server.pprof_text import aligned, text
from tests.unit.export.small_profile import LIBC, LOCK, MAIN, RECEIVE, UNKNOWN, WORK

OFFSETS = {LOCK.address: 0x2F, WORK.address: 0x5, RECEIVE.address: 0x12}


def head(kind: str) -> tuple[str, ...]:
    endpoint = kind_named(kind).endpoint
    assert endpoint is not None
    return endpoint.text


def profile(*samples: Sample) -> Profile:
    return BLOCK.make_profile(samples, [MAIN, LIBC], time_ns=1, duration_ns=1)


def test_stacks_by_delay_with_their_frames_below() -> None:
    waits = profile(Sample((RECEIVE, WORK), (2, 300)), Sample((LOCK, WORK), (1, 4500)))
    found = text(waits, head("block"), OFFSETS.get)
    assert found == (
        "--- contention:\n"
        "cycles/second=1000000000\n"
        "4500 1 @ 0x401001 0x402001\n"
        "#\t0x401000\tsync.(*Mutex).Lock+0x2f\t\t/go/sync/mutex.go:46\n"
        "#\t0x401000\tsync.(*RWMutex).Lock+0x2f\t/go/sync/rwmutex.go:146\n"
        "#\t0x402000\tmain.work+0x5\t\t\t/src/main.go:12\n"
        "\n"
        "300 2 @ 0x403001 0x402001\n"
        "#\t0x403000\truntime.chanrecv1+0x12\t/go/runtime/chan.go:442\n"
        "#\t0x402000\tmain.work+0x5\t\t/src/main.go:12\n"
        "\n"
    )


def test_a_mutex_profile_states_its_sampling_period() -> None:
    found = text(replace(profile(), kind="mutex"), head("mutex"), OFFSETS.get)
    assert found == "--- mutex:\ncycles/second=1000000000\nsampling period=1\n"


def test_a_single_value_stands_before_its_stack() -> None:
    types = (ValueType("threads", "count"),)
    found = text(
        replace(profile(Sample((UNKNOWN,), (3,))), sample_types=types), ["threads:"], OFFSETS.get
    )
    assert found == "threads:\n3 @ 0x7f0000000011\n#\t0x7f0000000010\n\n"


def test_unknown_names_are_left_out() -> None:
    strange = Location(0x404000, MAIN, (Frame("main.\x1b[2J", "/src/\n.go", 1),))
    found = text(profile(Sample((strange, UNKNOWN), (1, 1))), head("block"), OFFSETS.get)
    assert found.splitlines()[2:] == [
        "1 1 @ 0x404001 0x7f0000000011",
        "#\t0x404000\tmain.\\x1b[2J\t/src/\\n.go:1",
        "#\t0x7f0000000010",
        "",
    ]


def test_columns_are_as_wide_as_the_widest_cell_of_the_rows_around() -> None:
    # As printed by Go's text/tabwriter with the parameters of runtime/pprof.
    rows = [
        ["#", "0x1", "short", "a"],
        ["#", "0x1234567", "a longer name", "b"],
        ["#", "0x12"],
        ["#", "0x3", "ends here", "c"],
    ]
    assert aligned(rows) == [
        "#\t0x1\t\tshort\t\ta",
        "#\t0x1234567\ta longer name\tb",
        "#\t0x12",
        "#\t0x3\tends here\tc",
    ]
    assert aligned([]) == []


@pytest.mark.parametrize(("lists", "shown"), [(0, "f[go.shape.int]"), (1, "f[...]")])
def test_type_arguments_are_those_of_the_version(lists: int, shown: str) -> None:
    at = Location(0x404000, MAIN, (Frame("main.f[go.shape.int]", "/f.go", 1),))
    found = text(profile(Sample((at,), (1, 1))), head("block"), OFFSETS.get, lists)
    assert f"main.{shown}\t/f.go:1" in found
