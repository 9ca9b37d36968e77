"""Numbers in text files of the kernel, and text that is not what it should be."""

from __future__ import annotations

import pytest

from ebpfprof.process.kernel_numbers import (
    keyed,
    major_faults,
    number,
    pressure,
    processor_ticks,
    quota,
    run_delay_ns,
    start_ticks,
)

CPU_STAT = b"nr_periods 12\nnr_throttled 7\nthrottled_time 1234567890\n"
STATUS = (
    b"Name:\tvoluntary_ctxt_switches:\\t7\nState:\tD (disk sleep)\nVmRSS:\t    4616 kB\n"
    b"Threads:\t9\nvoluntary_ctxt_switches:\t165\nnonvoluntary_ctxt_switches:\t3\n"
)
STAT = (
    b"7 (a) R 1 (b) S 1 7 7 0 -1 4194304 7381 1 5 2 61 17 3 4 20 0 9 0 1234 5678 90 "
    b"18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"
)
PROCESSORS = (
    b"cpu  3893590 2508192 2215413 4795639 38148 1 66571 2974 5 6\n"
    b"cpu0 1946795 1254096 1107706 2397819 19074 0 33285 1487 0 0\n"
)


def test_numbers_behind_names() -> None:
    assert keyed(CPU_STAT) == {"nr_periods": 12, "nr_throttled": 7, "throttled_time": 1234567890}
    assert keyed(b"rchar: 12\nread_bytes: 4096\n") == {"rchar": 12, "read_bytes": 4096}
    assert keyed(STATUS)["VmRSS"] == 4616
    assert keyed(STATUS)["voluntary_ctxt_switches"] == 165


@pytest.mark.parametrize(
    "text", [b"", b"a\n", b"a b\n", b"a -1\n", b"a 1 2\n", b"a 99999999999999999999\n", b"\xff 1\n"]
)
def test_what_makes_no_sense_is_missing(text: bytes) -> None:
    assert keyed(text) == {}
    assert number(text) is None
    assert quota(text) is None
    assert pressure(text) == {}
    assert run_delay_ns(text) is None
    assert major_faults(text) is None
    assert start_ticks(text) is None
    assert processor_ticks(text) is None


def test_a_number_alone() -> None:
    assert number(b"4096\n") == 4096
    assert number(b"max\n") is None
    assert number(b"-1\n") is None
    assert number(b"1\n2\n") is None
    assert number(b"18446744073709551616\n") is None


def test_a_quota_has_a_period() -> None:
    assert quota(b"50000 100000\n") == (50000, 100000)
    assert quota(b"max 100000\n") == (None, 100000)
    assert quota(b"50000 0\n") is None
    assert quota(b"50000\n") is None


def test_pressure_has_totals() -> None:
    some = b"some avg10=55.67 avg60=45.00 avg300=48.20 total=24866912392\n"
    full = b"full avg10=0.00 avg60=0.00 avg300=0.00 total=17\n"
    assert pressure(some + full) == {"some": 24866912392, "full": 17}
    assert pressure(some) == {"some": 24866912392}


def test_times_of_a_thread() -> None:
    assert run_delay_ns(b"393970 594805 6\n") == 594805


def test_a_name_with_brackets_does_not_move_the_fields() -> None:
    assert major_faults(STAT) == 5
    assert start_ticks(STAT) == 1234


def test_ticks_of_all_processors() -> None:
    ticks = processor_ticks(PROCESSORS)
    assert ticks is not None
    assert ticks._asdict() == {
        **{"user": 3893590, "nice": 2508192, "system": 2215413, "idle": 4795639},
        **{"iowait": 38148, "irq": 1, "softirq": 66571, "steal": 2974},
    }
    assert processor_ticks(PROCESSORS.replace(b"cpu ", b"cpu0")) is None
    assert processor_ticks(PROCESSORS.replace(b" 1 ", b" 18446744073709551616 ")) is None
