"""Open waits, from the scan of goroutines and the probes' rows."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine
from ebpfprof.profilers.waits.open_waits import BEGAN_BEFORE, OpenWait, ParkedAtEnd, open_waits
from ebpfprof.profilers.waits.rows import LastWait

STARTED_NS = 1_000
READ_NS = 5_000
G = 0xC000_0061_A0
SEMA = 0xC000_0120_84


def parked(*, address: int = G, sema: int = SEMA) -> ParkedGoroutine:
    return ParkedGoroutine(address, 7, "SyncMutexLock", (0x401000, 0x402000), sema)


def waits(
    *goroutines: ParkedGoroutine,
    last_waits: dict[int, LastWait] | None = None,
    read_ns: int = READ_NS,
    all_known: bool = True,
) -> list[OpenWait]:
    parked = ParkedAtEnd(goroutines, read_ns, ())
    return open_waits(parked, last_waits or {}, STARTED_NS, all_known=all_known)


def test_an_unseen_goroutine_waits_since_the_start_of_the_recording() -> None:
    (wait,) = waits(parked())
    assert (wait.total.count, wait.total.delay_ns) == (1, READ_NS - STARTED_NS)
    assert wait.labels == (BEGAN_BEFORE,)


def test_with_incomplete_rows_waits_have_no_start_time() -> None:
    (wait,) = waits(parked(), all_known=False)
    assert wait.total.delay_ns == READ_NS - STARTED_NS
    assert wait.labels == ()


def test_a_recorded_start_is_the_start_of_the_open_wait() -> None:
    goroutine = parked()
    (wait,) = waits(goroutine, last_waits={G: LastWait(3_500, waits=True)})
    assert (wait.total.count, wait.total.delay_ns) == (1, 1_500)
    assert wait.labels == ()
    assert (wait.total.sema, wait.total.return_pcs) == (SEMA, goroutine.return_pcs)
    assert wait.total.kind == "block"


@pytest.mark.parametrize(
    ("last_wait", "waited_ns"),
    [
        (LastWait(READ_NS, waits=True), 1),  # no wait is shown as none
        (LastWait(READ_NS + 1, waits=True), None),  # another wait than the one that was read
        (LastWait(3_500, waits=False), None),
        (LastWait(3_500, waits=False, woken_ns=READ_NS + 1), None),
        # ParkedAtEnd although it was woken before: overtaken at the semaphore.
        (LastWait(3_500, waits=False, woken_ns=READ_NS), 1_500),
        (LastWait(3_500, waits=False, woken_ns=4_000), 1_500),
    ],
)
def test_goroutines_woken_after_the_scan_are_not_shown(
    last_wait: LastWait, waited_ns: int | None
) -> None:
    found = waits(parked(), last_waits={G: last_wait})
    assert [wait.total.delay_ns for wait in found] == ([] if waited_ns is None else [waited_ns])


def test_only_semaphore_waits_go_on_after_a_wake() -> None:
    woken = LastWait(3_500, waits=False, woken_ns=4_000)
    assert waits(parked(sema=0), last_waits={G: woken}) == []


def test_goroutines_are_matched_by_address() -> None:
    other = parked(address=G + 0x1A0)
    found = waits(
        parked(),
        other,
        last_waits={other.address: LastWait(4_000, waits=True), 8: LastWait(0, True)},
    )
    assert [(wait.total.delay_ns, wait.began_before) for wait in found] == [
        (READ_NS - STARTED_NS, True),
        (1_000, False),
    ]


def test_an_empty_recording_has_open_waits_of_a_nanosecond() -> None:
    (wait,) = waits(parked(), read_ns=STARTED_NS)
    assert wait.total.delay_ns == 1
