"""Durations stay right when the clock is set, and in a time namespace."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builds import in_full
from tests.kernel.kernel_state import has_probes
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.programs import program
from tests.kernel.test_open import began_before, hang, open_profile
from tests.kernel.unharmed import whole_profiles
from tests.recorder import COMMAND, recording
from tests.targets_run import Target

pytestmark = pytest.mark.alone

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


@contextmanager
def clock_set_by(offset_ns: int) -> Iterator[None]:
    """Set the clock of the machine, and set it right again."""
    libc = ctypes.CDLL(None, use_errno=True)

    def step(by_ns: int) -> None:
        wanted = _Timespec(*divmod(time.time_ns() + by_ns, 1_000_000_000))
        if libc.clock_settime(time.CLOCK_REALTIME, ctypes.byref(wanted)):
            raise OSError(ctypes.get_errno(), "the clock can't be set")

    step(offset_ns)
    try:
        yield
    finally:
        step(-offset_ns)


@pytest.mark.parametrize("offset_ns", [*in_full(HOUR_NS), -HOUR_NS])
def test_durations_stay_right_when_the_clock_is_set(offset_ns: int, tmp_path: Path) -> None:
    began_ns, began_monotonic_ns = time.time_ns(), time.monotonic_ns()
    nopprof = program("nopprof")
    with Target.start(nopprof) as target, recording(target.pid, tmp_path, "--open") as recorder:
        with clock_set_by(offset_ns):
            target.ask("go", "done")
        recorder.interrupt()
        finished = recorder.finish()
        assert not has_probes(target.pid)
    assert finished.code == 0, finished.stderr
    length_ns = time.monotonic_ns() - began_monotonic_ns
    profile, _ = whole_profiles(tmp_path)
    assert 0 < profile.duration_ns < length_ns
    assert began_ns < profile.time_ns < began_ns + length_ns
    assert sum(sample.values[0] for sample in profile.samples) > 300
    assert all(0 < sample.values[1] < length_ns * sample.values[0] for sample in profile.samples)


@NEEDS_NAMESPACES
@pytest.mark.parametrize("offset", ["later", *in_full("earlier")])
def test_durations_are_right_in_a_time_namespace(offset: str, tmp_path: Path) -> None:
    """The profiler's CLOCK_MONOTONIC differs from that of BPF programs."""
    offset_s = 100_000 if offset == "later" else -int(time.monotonic() / 2)
    unshared = ("/usr/bin/unshare", "--time", f"--monotonic={offset_s}", *COMMAND)
    began_ns = time.monotonic_ns()
    with Target.start(program("heldlocks")) as target:
        hang(target, "early")
        with recording(target.pid, tmp_path, "--open", command=unshared) as recorder:
            late = hang(target, "late")
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
    length_ns = time.monotonic_ns() - began_ns
    waits = [sample for sample in open_profile(tmp_path).samples if not began_before(sample)]
    assert sum(wait.values[0] for wait in waits) == sum(len(x["starts_ns"]) for x in late.values())
    assert all(0 < each.values[1] < length_ns * each.values[0] for each in waits)
