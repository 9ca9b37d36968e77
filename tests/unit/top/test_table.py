"""Rows of `ebpfprof top`: windows and sums, locks, idle waits, sorting and filtering."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ebpfprof.export.tables.handlers import OUTSIDE, handler_name
from ebpfprof.profile.behaviour import IdleBehaviour
from ebpfprof.profile.evidence import UNKNOWN_RELEASE
from ebpfprof.profile.model import (
    Frame,
    Label,
    Location,
    Lock,
    Profile,
    Sample,
)
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX
from ebpfprof.top.rows import Reading, Shown, Snapshot, Sort, shown
from ebpfprof.top.table import TopTable
from tests.unit.top.moments import MAIN

S = 1_000_000_000


def at(address: int, *functions: str) -> Location:
    """One call, inlined ones first."""
    return Location(
        0x400000 + address,
        MAIN,
        tuple(Frame(name, f"/src/{name}.go", address) for name in functions),
    )


LOCK = at(1, "sync.(*Mutex).Lock")
RECEIVE = at(2, "runtime.chanrecv1")
GET = at(10, "main.get")
PUT = at(11, "main.put")
SERVE = at(12, "main.serve")
WORKER = at(13, "main.worker")


def block(*samples: Sample) -> Profile:
    return BLOCK.make_profile(samples, [MAIN], time_ns=1, duration_ns=1, comments=[])


def waits(
    recorded_ns: int, *of: tuple[Sequence[Location], int, int], is_over: bool = False
) -> list[Snapshot]:
    profile = block(*(Sample(tuple(s), (n, ns)) for s, n, ns in of))
    return [Snapshot(7, recorded_ns, profile, is_over=is_over)]


def names(rows: Shown) -> list[str]:
    return [row.key.name for row in rows.rows]


def read_twice() -> Reading:
    table = TopTable("block")
    table.read(waits(S, ((LOCK, GET), 5, 9000), ((LOCK, PUT), 4, 4)))
    last = ((LOCK, GET), 6, 9100), ((LOCK, PUT), 4, 4), ((RECEIVE, PUT, SERVE), 2, 600)
    return table.read(waits(3 * S, *last))


def test_the_variance_of_a_window_is_what_was_added() -> None:
    """A later sum has the variance of an earlier one in it; where it fell, the sum's is taken."""
    table = TopTable("block")

    def read(second: int, value: int, variance: float) -> tuple[float, float]:
        sample = Sample((LOCK, GET), (1, value), variance=variance)
        (row,) = table.read([Snapshot(7, second * S, block(sample))]).rows
        return row.variance, row.total_variance

    assert read(1, 100, 16.0) == (16, 16)
    assert read(2, 300, 25.0) == (9, 25)
    assert read(3, 400, 16.0) == (1, 16)
    assert read(4, 400, 0.0) == (0, 0)


def test_counts_have_variances_of_their_own() -> None:
    table = TopTable("block")

    def read(second: int, count: int, variance: float) -> float:
        sample = Sample((LOCK, GET), (count, 7 * second), count_variance=variance)
        (row,) = table.read([Snapshot(7, second * S, block(sample))]).rows
        return row.count_variance

    assert read(1, 100, 16.0) == 16
    assert read(2, 300, 25.0) == 9
    assert read(3, 400, 16.0) == 1


def test_the_errors_of_a_row_are_those_of_its_stacks() -> None:
    some = [
        Sample((LOCK, GET, SERVE), (15, 60), variance=9.0, count_variance=4.0),
        Sample((LOCK, GET, WORKER), (10, 40), variance=16.0, count_variance=5.0),
    ]
    (row,) = TopTable("block").read([Snapshot(7, S, block(*some))]).rows
    assert (row.error, row.total_error, row.count_error) == (0.05, 0.05, 0.12)


def test_a_row_has_the_window_and_the_total() -> None:
    reading = read_twice()
    assert reading.window_ns == 2 * S
    rows = {(r.key.operation, r.key.name): r for r in reading.rows}
    got = rows["Mutex.Lock", "main.get"]
    assert (got.count, got.value, got.total_count, got.total_value) == (1, 100, 6, 9100)
    assert got.mean == 100
    quiet = rows["Mutex.Lock", "main.put"]
    assert (quiet.count, quiet.value, quiet.total_value, quiet.mean) == (0, 0, 4, 1)
    new = rows["chan receive", "main.put"]
    assert (new.count, new.value, new.total_value) == (2, 600, 600)
    assert new.key.place == "main.put.go:11"
    assert reading.count_per_s == 1.5


def test_the_first_window_begins_with_the_recording() -> None:
    reading = TopTable("block").read(waits(4 * S, ((LOCK, GET), 5, 8 * S)))
    assert reading.window_ns == 4 * S
    assert [(row.count_per_s, row.rate) for row in reading.rows] == [(1.25, 2.0)]


def test_each_target_has_its_own_window() -> None:
    """Targets are started and read one after the other."""
    table = TopTable("block")

    def read(*targets: tuple[int, int, int]) -> list[tuple[int, float, float]]:
        found = [
            Snapshot(pid, recorded_ns, block(Sample((LOCK, GET), (1, ns))))
            for pid, recorded_ns, ns in targets
        ]
        reading = table.read(found)
        assert reading.window_ns == max(row.window_ns for row in reading.rows)
        return [(row.key.pid, row.rate, shown(reading).rate) for row in reading.rows]

    assert read((7, 6 * S, 30 * S), (8, 2 * S, 2 * S)) == [(7, 5.0, 6.0), (8, 1.0, 6.0)]
    assert read((7, 8 * S, 31 * S), (8, 5 * S, 8 * S)) == [(7, 0.5, 2.5), (8, 2.0, 2.5)]


def test_without_a_new_window_rates_stay() -> None:
    """Until the target ends: then nothing waits in it."""
    table = TopTable("block")
    first = table.read(waits(2 * S, ((LOCK, GET), 5, 4 * S)))
    same = table.read(waits(2 * S, ((LOCK, GET), 5, 4 * S)))
    assert (same.window_ns, list(same.rows)) == (first.window_ns, list(first.rows))
    assert same.rows[0].rate == 2.0
    assert [(stack.rate, stack.count_per_s) for stack in same.stacks_of(0)] == [(2.0, 2.5)]
    later = table.read(waits(6 * S, ((LOCK, GET), 9, 8 * S)))
    assert later.rows[0].rate == 1.0
    over = table.read(waits(6 * S, ((LOCK, GET), 9, 8 * S), is_over=True))
    assert (over.window_ns, over.rows[0].rate, over.rows[0].total_value) == (0, 0.0, 8 * S)


def test_stacks_of_a_place_share_a_row_and_are_listed_below() -> None:
    table = TopTable("block")
    snapshot = waits(S, ((LOCK, GET), 1, 10), ((LOCK, GET, SERVE), 2, 90), ((LOCK, PUT), 1, 1))
    reading = table.read(snapshot)
    row = next(row for row in reading.rows if row.key.name == "main.get")
    assert (row.count, row.value) == (3, 100)
    stacks = reading.stacks_of(row.number)
    assert [(s.sample.locations, s.count, s.value) for s in stacks] == [
        ((LOCK, GET, SERVE), 2, 90),
        ((LOCK, GET), 1, 10),
    ]


def test_stacks_with_different_labels_are_distinct() -> None:
    one, other = (Label("user", name) for name in ("anna", "ben"))
    table = TopTable("block")
    for factor in (1, 2):
        samples = [Sample((LOCK, GET), (factor, 10 * factor), (label,)) for label in (one, other)]
        reading = table.read([Snapshot(7, factor * S, block(*samples))])
    assert [(s.sample.labels, s.value) for s in reading.stacks_of(0)] == [
        ((one,), 10),
        ((other,), 10),
    ]
    assert [(row.value, row.total_value) for row in reading.rows] == [(20, 40)]


def test_targets_have_separate_rows() -> None:
    table = TopTable("block")
    profile = block(Sample((LOCK, GET), (1, 10)))
    reading = table.read([Snapshot(7, S, profile), Snapshot(8, S, profile), Snapshot(9, 0, None)])
    assert [(row.key.pid, row.value) for row in reading.rows] == [(7, 10), (8, 10)]


def test_stacks_are_compared_by_value() -> None:
    """Without names, each snapshot has its own locations."""
    table = TopTable("block")
    for count in (1, 3):
        bare = [Location(0x400001 + offset, MAIN, ()) for offset in (1, 2)]
        reading = table.read(waits(count * S, (bare, count, 10 * count)))
    assert [(row.count, row.value, row.total_value) for row in reading.rows] == [(2, 20, 30)]


def test_idle_waits_have_their_own_rows_and_are_hidden() -> None:
    reading = TopTable("block").read(
        waits(S, ((RECEIVE, WORKER), 3, 3 * S), ((RECEIVE, WORKER, SERVE), 1, S))
    )
    found = shown(reading)
    assert [(row.key.name, row.rate) for row in found.rows] == [("main.worker", 1.0)]
    assert [(each.count_per_s, each.rate) for each in found.hidden] == [(3.0, 3.0)]
    assert found.rate == 1.0
    every = shown(reading, hide_idle=False)
    assert [row.rate for row in every.rows] == [3.0, 1.0]
    assert [row.key.idle is not None for row in every.rows] == [True, False]
    assert (every.rate, list(every.hidden)) == (4.0, [])


def test_a_mutex_profile_has_no_idle_rows() -> None:
    profile = MUTEX.make_profile(
        [Sample((RECEIVE, WORKER), (3, 300))],
        [MAIN],
        time_ns=1,
        duration_ns=1,
        comments=[],
    )
    reading = TopTable("mutex").read([Snapshot(7, S, profile)])
    assert len(shown(reading).rows) == 1


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("delay", ["main.b", "main.a", "main.c"]),
        ("count", ["main.c", "main.a", "main.b"]),
        ("mean", ["main.b", "main.a", "main.c"]),
        ("name", ["main.a", "main.b", "main.c"]),
    ],
)
def test_rows_are_sorted_by_each_column(sort: Sort, expected: list[str]) -> None:
    reading = TopTable("block").read(
        waits(
            S,
            ((LOCK, at(20, "main.c")), 30, 100),
            ((LOCK, at(21, "main.a")), 3, 200),
            ((LOCK, at(22, "main.b")), 2, 300),
        )
    )
    assert names(shown(reading, sort=sort)) == expected
    assert names(shown(reading, sort=sort, reverse=True)) == expected[::-1]


def test_unchanged_rows_come_last_by_their_totals() -> None:
    table = TopTable("block")
    old = ((LOCK, at(20, "main.old")), 9, 9_000)
    older = ((LOCK, at(21, "main.older")), 1, 10_000)
    table.read(waits(S, old, older))
    reading = table.read(waits(2 * S, old, older, ((LOCK, GET), 1, 1)))
    assert names(shown(reading)) == ["main.get", "main.older", "main.old"]
    assert names(shown(reading, sort="count")) == ["main.get", "main.old", "main.older"]
    assert names(shown(reading, sort="mean")) == ["main.get", "main.older", "main.old"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("put", ["main.put", "main.put"]),
        ("^chan receive", ["main.put"]),
        (r"get\.go:10$", ["main.get"]),
        ("Mutex.*get", ["main.get"]),
        ("nothing", []),
    ],
)
def test_a_filter_keeps_rows_by_operation_name_and_place(pattern: str, expected: list[str]) -> None:
    found = shown(read_twice(), pattern=re.compile(pattern))
    assert names(found) == expected
    assert found.matched == 3
    assert found.rate == pytest.approx(700 / (2 * S))


def test_functions_have_flat_and_cumulative_time() -> None:
    def cpu(second: int, leaf: int, caller: int) -> list[Snapshot]:
        samples = [
            Sample((GET, SERVE), (leaf, leaf * 10)),
            Sample((SERVE, at(12, "main.serve")), (caller, caller * 10)),
        ]
        profile = CPU.make_profile(
            samples, [MAIN], period=10, time_ns=1, duration_ns=1, comments=[]
        )
        return [Snapshot(7, second * S, profile)]

    table = TopTable("cpu")
    table.read(cpu(1, 2, 1))
    reading = table.read(cpu(2, 5, 2))
    rows = {row.key.name: row for row in reading.rows}
    get, serve = rows["main.get"], rows["main.serve"]
    assert (get.value, get.total_value, get.callees, get.total_callees) == (30, 50, 30, 50)
    assert (serve.value, serve.total_value, serve.callees, serve.total_callees) == (10, 20, 40, 70)
    assert names(shown(reading)) == ["main.get", "main.serve"]
    assert names(shown(reading, sort="count")) == ["main.serve", "main.get"]
    assert len(reading.stacks_of(serve.number)) == 2


def test_functions_have_rows_by_process_and_may_lack_names() -> None:
    """One place in two processes is two rows, and inlined functions are rows of their own."""
    inlined = at(30, "main.inner", "main.outer")
    bare = Location(0x400040, MAIN, ())
    samples = [Sample((inlined, SERVE), (1, 10)), Sample((bare,), (2, 20))]
    profile = CPU.make_profile(samples, [MAIN], period=10, time_ns=1, duration_ns=1, comments=[])
    reading = TopTable("cpu").read([Snapshot(7, S, profile), Snapshot(8, S, profile)])
    assert [(r.key.pid, r.key.name, r.value, r.callees) for r in reading.rows] == [
        (pid, *row)
        for pid in (7, 8)
        for row in (
            ("main.inner", 10, 10),
            ("main.outer", 0, 10),
            ("main.serve", 0, 10),
            ("[unknown]", 20, 20),
        )
    ]


def lock(address: int, name: str | None, count: int, ns: int, holds: int = 0) -> Lock:
    return Lock(
        address,
        "sync.Mutex",
        name,
        waits=(Sample((LOCK, PUT), (count, ns)),),
        releases=(Sample((LOCK, GET), (count, ns)),),
        holds=holds,
        held_ns=holds * ns,
    )


def test_locks_of_equal_name_have_two_rows_and_late_names() -> None:
    table = TopTable("locks")
    table.read([Snapshot(7, S, None, [lock(0x10, None, 1, 10), lock(0x20, "main.mu", 1, 30)])])
    locks = [lock(0x10, "main.mu", 3, 50, holds=2), lock(0x20, "main.mu", 1, 30)]
    reading = table.read([Snapshot(7, 2 * S, None, locks)])
    rows = shown(reading).rows
    assert [(row.key.name, row.key.place, row.count, row.value) for row in rows] == [
        ("main.mu", "0x10", 2, 40),
        ("main.mu", "0x20", 0, 0),
    ]
    assert [row.held_ns for row in rows] == [50, None]
    assert [(s.role, s.value) for s in reading.stacks_of(rows[0].number)] == [
        ("released", 40),
        ("waited for", 40),
    ]


def test_a_lock_without_a_name_is_shown_by_its_address() -> None:
    reading = TopTable("locks").read([Snapshot(7, S, None, [lock(0x10, None, 1, 10)])])
    assert names(shown(reading)) == ["sync.Mutex at 0x10"]


def test_quantiles_of_holds_are_those_since_the_start() -> None:
    table = TopTable("locks")
    holds = WaitHistogram.of([1_000_000] * 197 + [20_000_000] * 3)
    each = replace(lock(0x10, "main.mu", 200, 200 * S, holds=200), hold_lengths=holds)
    (row,) = table.read([Snapshot(7, S, None, [each])]).rows
    assert row.hold_quantile("p99") == holds.quantile(0.99)
    (row,) = table.read([Snapshot(7, S, None, [lock(0x10, "main.mu", 200, 200 * S)])]).rows
    assert row.hold_quantile("p99") == holds.quantile(0.99)  # the same moment
    (row,) = TopTable("locks").read([Snapshot(7, S, None, [lock(0x10, "main.mu", 1, S)])]).rows
    assert row.hold_quantile("p99") is None


def test_the_hold_time_of_a_lock_is_of_the_window_if_known() -> None:
    table = TopTable("locks")

    def held(second: int, holds: int, held_ns: int) -> float | None:
        each = Lock(0x10, "sync.Mutex", "main.mu", (), (), holds, held_ns)
        (row,) = table.read([Snapshot(7, second * S, None, [each])]).rows
        return row.held_ns

    assert [held(1, 0, 0), held(2, 2, 20), held(3, 3, 90), held(4, 3, 90)] == [None, 10, 70, 30]


def test_a_row_of_a_library_says_where_the_program_calls_it() -> None:
    get, pay = at(20, "example.com/grpc.(*buffer).get"), at(21, "example.com/shop/pay.Pay")
    profile = block(
        Sample((RECEIVE, get, pay, SERVE), (1, 5)), Sample((RECEIVE, get, SERVE), (1, 4))
    )
    table = TopTable("block")
    module = replace(profile, module="example.com/shop")
    reading = table.read([Snapshot(7, S, module)])
    assert [row.key.place for row in reading.rows] == [
        "grpc.(*buffer).get.go:20 from example.com/shop/pay.Pay",
        "grpc.(*buffer).get.go:20 from main.serve",
    ]


def test_waits_become_idle_by_behaviour_without_a_new_begin() -> None:
    table = TopTable("block")
    sample = Sample((RECEIVE, GET), (1, S))

    def read(seconds: int, behaviour: IdleBehaviour | None) -> Shown:
        each = replace(sample, values=(seconds, seconds * S), behaviour=behaviour)
        return shown(table.read([Snapshot(7, seconds * S, block(each))]), hide_idle=True)

    assert names(read(1, None)) == ["main.get"]
    found = read(2, IdleBehaviour(1, 0.99, "timer"))
    assert names(found) == []
    (hidden,) = found.hidden
    assert hidden.rule.name == "loop of a timer"
    # The text changes with each sample; it stays one row.
    again = read(3, IdleBehaviour(1, 0.98, "timer")).hidden
    assert [each.rule for each in again] == [hidden.rule]
    assert names(read(4, None)) == ["main.get"]


def of_handlers(profile: Profile, *names: str) -> list[Snapshot]:
    """A profile with the names of the handlers of its samples, "" for none."""
    return [Snapshot(7, S, profile, handlers=[name or OUTSIDE for name in names])]


def test_rows_by_handler_are_those_of_a_handler_and_an_operation() -> None:
    profile = block(
        Sample((LOCK, GET), (1, 4 * S)),
        Sample((LOCK, PUT), (1, 2 * S)),
        Sample((RECEIVE, GET), (1, S)),
        Sample((LOCK,), (1, S // 2)),
    )
    reading = TopTable("block").read(of_handlers(profile, "main.a", "main.a", "main.a", ""))
    found = [(row.key.operation, row.key.name, row.value) for row in shown(reading).rows]
    assert found == [
        ("Mutex.Lock", "main.a", 6 * S),
        ("chan receive", "main.a", S),
        ("Mutex.Lock", "(outside of handlers)", S // 2),
    ]


def test_a_handler_whose_route_becomes_known_keeps_its_sums() -> None:
    """A label of the program's own is no name of a handler, and keeps stacks apart."""
    table = TopTable("block")
    own = (Label("handler", "green"),)
    names = "main.get", "main.get: GET /a", "main.get: GET /a"
    for seconds, name in enumerate(names, 1):
        samples = Sample((LOCK, GET), (seconds, seconds * S)), Sample((LOCK, GET), (1, S), own)
        (snapshot,) = of_handlers(block(*samples), name, "green")
        reading = table.read([replace(snapshot, recorded_ns=seconds * S)])
        found = {row.key.name: (row.value, row.total_value) for row in shown(reading).rows}
        new = S if seconds == 1 else 0
        assert found == {name: (S, seconds * S), "green": (new, S)}


def test_releases_that_were_not_recorded_have_a_row_of_their_own_beside_handlers() -> None:
    unknown = Sample((UNKNOWN_RELEASE,), (0, S))
    profile = MUTEX.make_profile([unknown], [MAIN], time_ns=1, duration_ns=1)
    name = handler_name(unknown)
    (row,) = shown(TopTable("mutex").read(of_handlers(profile, name))).rows
    assert (row.key.name, row.is_unknown) == ("(releases not recorded)", True)
