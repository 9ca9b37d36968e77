"""Events as the kernel wrote them, with whatever a program had in its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ebpfprof.kernel import c_facts
from ebpfprof.timeline.events import NO_P, Event, EventKind
from ebpfprof.tracing.decode import Decoder
from ebpfprof.tracing.rings import EVENT
from symbolizer.go.runtime_layout import layout_for
from symbolizer.go.version import GoVersion

NUMBERS = c_facts.enum("trace/events.h", "event_kind")


def decoded(kind: str, version: str = "go1.27", /, **fields: int) -> tuple[list[Event], Decoder]:
    row: Any = np.zeros(1, EVENT)
    row["kind"] = NUMBERS[kind]
    for name, value in fields.items():
        row[name] = value
    decoder = Decoder(layout_for(GoVersion.parse(version)))
    return list(decoder.events(row)), decoder


def test_the_kinds_are_those_of_the_kernel() -> None:
    kinds = [name for name in NUMBERS if name != "TEXT_PIECE"]
    assert set(kinds) == {kind.name for kind in EventKind}
    assert [decoded(name)[0][0].kind.name for name in kinds] == kinds


@pytest.mark.parametrize("p", [-2, 1 << 20, -(1 << 31)])
def test_an_impossible_p_is_none(p: int) -> None:
    assert decoded("PARK", p=p)[0][0].p == NO_P


@pytest.mark.parametrize("field", ["goid", "by"])
def test_events_of_impossible_goroutines_are_counted(field: str) -> None:
    events, decoder = decoded("READY", **{field: (1 << 64) - 1})
    assert events == []
    assert decoder.unreadable == 1


def test_a_park_has_its_reason_in_place_of_the_running_goroutine() -> None:
    word = 5 << 48 | 0xC000012344
    (event,), _ = decoded("PARK", goid=7, by=word)
    assert (event.goid, event.by, event.on) == (7, 7, word)
    assert decoded("READY", goid=7, by=8)[0][0].on == 0


def test_the_other_goroutine_of_a_coroutine_must_be_possible_too() -> None:
    assert decoded("SWITCH", goid=1, more=1 << 60)[1].unreadable == 1
    assert decoded("CREATE", goid=1, more=1 << 60)[1].unreadable == 0  # an address


def test_reasons_are_those_of_the_version() -> None:
    reason = layout_for(GoVersion.parse("go1.27")).wait_reasons["ChanReceive"]
    assert decoded("PARK", reason=reason)[0][0].word == "chan receive"
    assert decoded("PARK", reason=255)[0][0].word == ""
    assert decoded("STOP_WORLD", reason=1)[0][0].word == "GC mark termination"
    assert decoded("STOP_WORLD", "go1.19", reason=1)[0][0].word == "unknown"
    assert decoded("STOP_WORLD", reason=200)[0][0].word == "unknown"


def wake(is_fault: bool, **fields: int) -> Event:
    row: Any = np.zeros(1, EVENT)
    name = b"curl\0\x1b[2J".ljust(16, b"\0")
    row["kind"], row["tid"], row["by"] = NUMBERS["THREAD_WAKE"], 5, 4711
    row["stack"], row["more"] = np.frombuffer(name, "<u8")
    for field, value in fields.items():
        row[field] = value
    layout = layout_for(GoVersion.parse("go1.27"))
    (found,) = Decoder(layout, lambda entry: is_fault and entry == 0xFFFF).events(row)
    return found


def test_a_wake_has_its_waker() -> None:
    found = wake(is_fault=False)
    assert (found.tid, found.more, found.word) == (5, 4711, "curl")
    assert (found.goid, found.by, found.stack) == (0, 0, 0)
    assert not found.is_made
    assert not found.is_exit
    assert wake(is_fault=False, is_exit=1).is_exit


def test_faults_are_not_interrupts() -> None:
    """Both enter the kernel from user mode without a system call."""
    assert wake(is_fault=False, is_made=1).is_made
    assert wake(is_fault=False, is_made=1, goid=0xFFFF).is_made
    assert wake(is_fault=True, is_made=1).is_made
    assert not wake(is_fault=True, is_made=1, goid=0xFFFF).is_made
