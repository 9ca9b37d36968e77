"""The tables of `ebpfprof top`: one for each profile kind that has a key, and one of locks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers import registry
from ebpfprof.profilers.options import Options
from ebpfprof.top.rows import Moment, Snapshot, TargetLine
from ebpfprof.top.state import TopView
from ebpfprof.top.table import TopTable
from ebpfprof.top.views import views, views_of
from tests.unit.made_up_kinds import ALLOCS, GOROUTINES
from tests.unit.top.apps import after
from tests.unit.top.moments import LOCK, MAIN, RECEIVE, S, calling, view

MIB = 1 << 20


def seen(kind: ProfileKind, *samples: Sequence[Sample]) -> Moment:
    """The last of some samples, two seconds apart, at profiles of a kind."""
    table = TopTable(kind.name)
    for number, at_once in enumerate(samples, 1):
        profile = Profile(
            kind=kind.name,
            sample_types=kind.sample_types,
            period_type=kind.sample_types[0],
            period=1,
            samples=tuple(at_once),
            mappings=(MAIN,),
            time_ns=1,
            duration_ns=2 * S * number,
            comments=(),
        )
        reading = table.read([Snapshot(7, 0 if kind.is_moment else 2 * S * number, profile)])
    return Moment({kind.name: reading}, [TargetLine(7, "shop", "go1.27.3")], 4 * S, 0.01)


def test_each_kind_with_a_key_has_a_view_and_so_have_locks() -> None:
    assert [(each.key, each.name, each.rows) for each in views()] == [
        ("b", "block", "operations"),
        ("u", "mutex", "operations"),
        ("y", "wakers", "operations"),
        ("x", "cpu", "functions"),
        ("t", "wall", "operations"),
        ("o", "goroutine", "operations"),
        ("e", "heap", "functions"),
        ("a", "allocs", "functions"),
        ("s", "threads", "operations"),
        ("l", "locks", "locks"),
    ]


@pytest.mark.parametrize(
    ("kinds", "by_lock", "expected"),
    [
        (["cpu", "mutex"], False, ["mutex", "cpu"]),
        (["mutex"], True, ["mutex", "locks"]),
        (["cpu"], True, ["cpu"]),
        (["open"], False, []),
    ],
)
def test_recorded_kinds_have_views(kinds: list[str], by_lock: bool, expected: list[str]) -> None:
    found = views_of(kinds, Options(kinds, by_lock=by_lock))
    assert [each.name for each in found] == expected


@pytest.mark.parametrize("key", "dcmnrilpwhq")
def test_a_kind_can_not_have_a_key_in_use(key: str) -> None:
    message = f"Key '{key}' of profile kind 'mallocs'"
    with registry.registered(replace(ALLOCS, key=key)), pytest.raises(ValueError, match=message):
        views()


@pytest.mark.usefixtures("made_up")
def test_a_new_kind_has_its_key_and_its_line_in_the_help() -> None:
    top = view()
    top.views = ["block", "crowd"]
    text = after(top, "h", height=51)
    assert "g  crowd: where goroutines are" in text
    assert "z  allocation: where memory was allocated" in text
    assert "Home, End, j, k, G, the wheel" in text
    assert top.switch("g") == ""
    assert top.view == "crowd"
    assert top.switch("z") == (
        "The allocation profile is not recorded: start again with --profile mallocs."
    )
    assert top.view == "crowd"


@pytest.mark.usefixtures("made_up")
def test_a_kind_of_bytes_is_shown_in_bytes() -> None:
    leaf, caller = calling(1, "main.leaf"), calling(2, "main.caller")
    first = [Sample((leaf, caller), (1, MIB))]
    last = [Sample((leaf, caller), (5, 5 * MIB)), Sample((caller,), (2, 2 * MIB))]
    top = TopView(seen(ALLOCS, first, last), ["mallocs"], "mallocs")
    text = after(top)
    assert "ebpfprof top  allocation  shop 7 go1.27.3" in text
    assert "3.0 allocations/s  memory 3.00 MiB/s  last 2.00 s" in text
    assert re.search(r"^ +Memory/s +Share +\+Callees +Total +\+Callees Function$", text, re.M)
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "2.00 MiB 66.7% 2.00 MiB 5.00 MiB 5.00 MiB main.leaf shop.go" in rows
    assert "1.00 MiB 33.3% 3.00 MiB 2.00 MiB 7.00 MiB main.caller shop.go" in rows
    assert "no mean" in top.sort_by("mean")
    text = after(top, "enter")
    assert "2.00 MiB/s (100.0%)  2.0/s  since the start: 5.00 MiB, 5 times" in text
    empty = TopView(seen(ALLOCS, ()), ["mallocs"], "mallocs")
    assert "Nothing was allocated." in after(empty)


@pytest.mark.usefixtures("made_up")
def test_profiles_of_a_moment_are_shown_unchanged() -> None:
    waiting = (LOCK, calling(1, "main.waiting"))
    gone = (RECEIVE, calling(2, "main.gone"))
    first = [Sample(waiting, (40,)), Sample(gone, (3,))]
    last = [Sample(waiting, (30,))]
    top = TopView(seen(GOROUTINES, first, last), ["crowd"], "crowd")
    text = after(top)
    assert text.splitlines()[2] == "30 goroutines  ebpfprof itself 1% CPU  nothing lost"
    assert re.search(r"^ +Goroutines +Share Operation +Called from", text, re.M)
    assert re.search(r"^ +30 100\.0% Mutex\.Lock +main\.waiting", text, re.M)
    assert "main.gone" not in text
    assert "30 (100.0%)" in after(top, "enter").splitlines()


def test_profiles_of_open_waits_have_counts_and_means() -> None:
    """As of open waits, if they had a key."""
    stack = (LOCK, calling(1, "main.waiting"))
    waiting = replace(registry.kind_named("open"), name="waiting", key="k", options=())
    with registry.registered(waiting) as kind:
        top = TopView(seen(kind, [Sample(stack, (4, 480 * S))]), ["waiting"], "waiting")
        text, stacks = after(top), after(top, "enter")
    assert text.splitlines()[2].startswith("4 open waits  waiting 8.00 min  ebpfprof itself")
    assert re.search(r"^ +Waiting +Share Goroutines +Mean Operation +Called from", text, re.M)
    assert re.search(r"^ *8\.00 min +100\.0% +4 +2\.00 min Mutex\.Lock +main\.waiting", text, re.M)
    assert "8.00 min (100.0%)  4" in stacks.splitlines()


def test_sizes_have_room_for_their_unit() -> None:
    """Of a heap profile, whose four values are narrowed to two: 63.3 KiB takes eight columns."""
    heap = registry.kind_named("heap")
    samples = [Sample((calling(1, "main.leaf"),), (9, 90 << 10, 3, 64819))]
    profile = heap.make_profile(samples, (), time_ns=0, duration_ns=1)
    narrow = heap.in_tables(profile)
    top = TopView(seen(heap, narrow.samples), ["heap"], "heap")
    text = after(top)
    assert "3 objects  in use 63.3 KiB" in text
    assert re.search(r"^ 63\.3 KiB +100\.0% 63\.3 KiB main\.leaf", text, re.M)
