"""A dump of goroutines as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from ebpfprof.export.tables import goroutines
from ebpfprof.profile.goroutines import Channel, DumpedGoroutine, GoroutineDump
from ebpfprof.profile.model import Frame, Label
from ebpfprof.profile.waiting_for import LockState, WaitsFor

APART_NS = 500_000_000
PARK = Frame("runtime.gopark", "/go/src/runtime/proc.go", 402)
RECEIVE = Frame("runtime.chanrecv1", "/go/src/runtime/chan.go", 442)
WORK = Frame("main.(*Pool).work", "/src/pool.go", 12)
MAIN = Frame("main.main", "/src/main.go", 7)
START = Frame("main.start", "/src/main.go", 30)


def goroutine(
    goid: int,
    *frames: Frame,
    state: str = "chan receive",
    stood_ns: int = 0,
    waited_ns: int = 0,
    is_whole: bool = True,
    is_locked: bool = False,
    labels: tuple[Label, ...] = (),
) -> DumpedGoroutine:
    return DumpedGoroutine(
        goid, state, frames, is_whole, stood_ns, waited_ns, is_locked, START, 1, labels
    )


def dumped(*found: DumpedGoroutine, moved: int = 0, beyond: int = 0) -> GoroutineDump:
    return GoroutineDump(42, "api", "go1.27.3", APART_NS, found, 5, moved, beyond)


def rendered(
    *found: DumpedGoroutine, each_alone: bool = False, width: int | None = None, moved: int = 0
) -> str:
    return goroutines.render(
        dumped(*found, moved=moved), each_alone=each_alone, width=width, color=False
    )


def test_equal_stacks_in_a_state_are_one_group_the_largest_first() -> None:
    text = rendered(
        goroutine(1, MAIN, state="select"),
        goroutine(18, PARK, RECEIVE, WORK, stood_ns=APART_NS, waited_ns=APART_NS),
        goroutine(19, PARK, RECEIVE, WORK),
    )
    assert text == (
        "3 goroutines of process 42 (api, go1.27.3)\n"
        "2 chan receive, 1 select\n"
        "1 did not move in 500 ms, in four samples\n"
        "\n"
        "2 goroutines: chan receive, 1 did not move\n"
        "    goroutines 18, 19\n"
        "    main.(*Pool).work                     pool.go:12\n"
        "    created by main.start in goroutine 1  main.go:30\n"
        "\n"
        "1 goroutine: select\n"
        "    goroutine 1\n"
        "    main.main                             main.go:7\n"
        "    created by main.start in goroutine 1  main.go:30\n"
    )


def test_channels_show_their_contents_and_other_waiters() -> None:
    full, other = Channel(0xC000, 2, 2, False), Channel(0xD000, 0, 0, False)
    text = rendered(
        replace(goroutine(1, WORK), channels=(full,)),
        replace(goroutine(2, MAIN), channels=(full, other)),
        replace(goroutine(3, START), channels=(other,)),
    )
    assert (
        "    for the channel at 0xc000, 2 of 2 values in it, 1 more goroutine waits for it\n"
        in text
    )
    assert "    for the channel at 0xd000, 1 more goroutine waits for it\n" in text
    assert "    for 2 channels\n" in text


def test_a_long_wait_says_for_how_long_at_least() -> None:
    text = rendered(goroutine(7, WORK, stood_ns=APART_NS, waited_ns=720_000_000_000))
    assert "1 goroutine: chan receive, for at least 12.0 min\n" in text


def test_one_by_one_each_has_its_id_and_labels() -> None:
    labels = (Label("tenant", "b"), Label("path", "/a"))
    found = (goroutine(8, WORK, labels=labels), goroutine(9, WORK, is_locked=True))
    text = rendered(*found, each_alone=True)
    assert "\ngoroutine 8: chan receive, path=/a tenant=b\n" in text
    assert "\ngoroutine 9: chan receive, locked to a thread\n" in text


def test_a_goroutine_without_a_stack_says_why() -> None:
    outside = goroutine(7, state="syscall")
    text = rendered(outside, goroutine(8, state="running"), goroutine(9), moved=1)
    assert "(no stack: its thread has called Go, and is now in C)" in text
    assert "(it runs: its stack is not in memory" in text
    assert "(no stack: it moved at each attempt to read it)" in text
    assert "incomplete: 1 without a stack" in text


def test_unreadable_labels_are_reported_in_proportion() -> None:
    found = replace(dumped(goroutine(8, WORK), goroutine(9, WORK)), unlabelled=1)
    text = goroutines.render(found, each_alone=False, width=None, color=False)
    assert "incomplete: the labels of 1 of 2 goroutines could not be read\n" in text
    assert json.loads(goroutines.encode(found))["without_labels"] == 1


def test_deadlocks_and_certain_leaks_are_red() -> None:
    mutex = LockState(0xC000, "sync.Mutex", "main.mu", is_locked=True)
    waits = WaitsFor(lock=mutex, may_hold=(8,))
    itself = replace(goroutine(8, WORK, state="sync.Mutex.Lock", stood_ns=1), waits_for=waits)
    stuck = goroutine(9, WORK, state="select (no cases)")
    found = dumped(itself, stuck)
    plain = goroutines.render(found, each_alone=False, width=None, color=False)
    shown = goroutines.render(found, each_alone=False, width=None, color=True)
    assert "Probably a deadlock: goroutine 8 waits for itself.\n" in plain
    assert (
        "    goroutine 8 waits in main.(*Pool).work, pool.go:12,\n"
        "        for main.mu (sync.Mutex at 0xc000): it may hold it itself\n" in plain
    )
    assert "\x1b[1;31mProbably a deadlock: goroutine 8 waits for itself.\x1b[0m\n" in shown
    assert "\x1b[1;31m1 goroutine: select (no cases), can never go on\x1b[0m\n" in shown
    assert "\x1b[1m1 goroutine: sync.Mutex.Lock" in shown
    assert "\x1b" not in plain


def test_the_middle_of_a_deep_stack_is_elided() -> None:
    text = rendered(goroutine(8, *[WORK] * 130, MAIN))
    assert text.count("main.(*Pool).work") == 99
    assert "...31 frames elided...\n" in text
    assert "main.main" in text


def test_a_stack_of_the_runtime_alone_is_shown() -> None:
    assert "runtime.gopark" in rendered(goroutine(8, PARK, RECEIVE))


def test_no_line_is_wider_than_the_terminal() -> None:
    long = Frame("example.com/" + "very/" * 40 + "long.F", "/src/" + "x" * 200 + ".go", 3)
    text = rendered(goroutine(8, long, state="select"), width=80)
    assert max(map(len, text.splitlines())) <= 80


def test_text_of_the_target_sends_no_control_character() -> None:
    bad = Frame("main.\x1b[2J\nF", "/src/\x07.go", 3)
    labels = (Label("a\x1b", "b\r"),)
    found = goroutine(8, bad, state="\x1b[1m", labels=labels)
    for each_alone in (False, True):
        text = rendered(found, each_alone=each_alone)
        assert all(line.isprintable() for line in text.splitlines())


def test_json_has_every_goroutine_and_what_is_missing() -> None:
    found = json.loads(
        goroutines.encode(dumped(goroutine(8, WORK, stood_ns=APART_NS, waited_ns=1), beyond=2))
    )
    assert (found["pid"], found["go"], found["beyond_limit"]) == (42, "go1.27.3", 2)
    assert found["goroutines"] == [
        {
            "id": 8,
            "state": "chan receive",
            "did_not_move": True,
            "waited_at_least_s": 1e-9,
            "locked_to_thread": False,
            "labels": {},
            "created_by": {"function": "main.start", "file": "/src/main.go", "line": 30},
            "created_by_goroutine": 1,
            "stack": [{"function": "main.(*Pool).work", "file": "/src/pool.go", "line": 12}],
            "stack_is_whole": True,
            "channels": [],
            "waits_for": None,
            "request": None,
            "can_never_go_on": False,
            "leaked": False,
        }
    ]
