"""The profiler is killed, or gets a signal, at the worst moments: it leaves nothing."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from symbolizer import ElfFile, GoBinary
from tests.builds import in_full
from tests.kernel.kernel_state import (
    await_gone,
    await_no_probes,
    bpf_objects,
    descendants,
    has_probes,
    helpers,
    leaked_probes,
    probed,
)
from tests.kernel.programs import program
from tests.kernel.tampered import command
from tests.kernel.unharmed import await_ended, await_true, check, state
from tests.recorder import Finished, Recorder, only_profile, run
from tests.targets_run import Target

# The moment, and whether there are probes then.
MOMENTS = {
    "stops before it attaches": False,
    "stops while attaching": True,
    "stops while recording": True,
    "stops while detaching": True,
    "stops while writing": False,
}
DEATHS = 3
SETTING_UP = ("stops before it attaches", "stops while attaching")


@pytest.fixture
def target() -> Iterator[Target]:
    """A program that checks itself all the time, under load."""
    with Target.start(program("checker")) as running:
        yield running
        assert running.ask("check", "").startswith("ok ")


@pytest.fixture
def ticking() -> Iterator[Target]:
    """A program that waits all the time and leaves the processors to others."""
    with Target.start(program("ticker")) as running:
        yield running


@contextmanager
def stopped(how: str, target: Target, folder: Path) -> Iterator[Recorder]:
    """A profiler of the target, stopped at a moment; nothing of it is left after the block."""
    duration_s = "600" if how in (*SETTING_UP, "stops while recording") else "0.2"
    arguments = ["--pid", str(target.pid), "--duration", duration_s]
    recorder = Recorder(arguments, folder, command=command(how))
    try:
        recorder.wait_until_stopped()
        if how == "stops while detaching":
            (helper,) = helpers(recorder.pid)
            await_true(lambda: state(helper) == "T", "the helper does not stop")
        objects = bpf_objects(recorder.pid)
        assert bool(objects) == (how != "stops while writing")  # all is closed by then
        assert has_probes(target.pid) == MOMENTS[how]
        assert any(each.kind == "link" for each in objects) == MOMENTS[how]
        yield recorder
    finally:
        recorder.close()
    await_no_probes(target.pid)
    await_gone(objects)


def end_with(recorder: Recorder, *signals: signal.Signals) -> Finished:
    """Let a stopped profiler and its helper go on, with signals that it finds when it does."""
    for number in signals:
        recorder.send(number)
    for pid in (*helpers(recorder.pid), recorder.pid):
        os.kill(pid, signal.SIGCONT)
    return recorder.finish()


def kill(recorder: Recorder) -> Finished:
    """Kill a stopped profiler, and let its helper go on."""
    left = helpers(recorder.pid)
    recorder.kill()
    for pid in left:
        os.kill(pid, signal.SIGCONT)
    return recorder.finish()


@pytest.mark.alone
@pytest.mark.parametrize("how", MOMENTS)
def test_a_killed_profiler_leaves_nothing(how: str, target: Target, tmp_path: Path) -> None:
    with stopped(how, target, tmp_path) as recorder:
        assert kill(recorder).code == -signal.SIGKILL
    assert os.listdir(tmp_path) == []


@pytest.mark.alone
@pytest.mark.parametrize("how", [*in_full("dies while attaching"), "dies while detaching"])
def test_a_profiler_killed_within_a_system_call_leaks_no_probe(
    how: str, target: Target, tmp_path: Path
) -> None:
    """A process with a pending SIGKILL can neither attach nor detach probes."""
    before = leaked_probes()
    for _ in range(DEATHS):
        arguments = ("--pid", str(target.pid), "--duration", "0.01")
        finished = run(*arguments, folder=tmp_path, command=command(how))
        assert finished.code == -signal.SIGKILL
        (helper,) = re.findall(r"^helper (\d+)$", finished.stderr, re.MULTILINE)
        await_ended(int(helper))
        assert not has_probes(target.pid)
    assert leaked_probes() == before


@pytest.mark.alone
def test_a_profiler_killed_between_windows_leaves_nothing(target: Target, tmp_path: Path) -> None:
    """Windows attach and detach probes all the time; the profiler dies at a random moment."""
    before = leaked_probes()
    moments = random.Random(1)
    for _ in range(DEATHS):
        arguments = ("--pid", str(target.pid), "--duration", "600", "--max-overhead", "0.5")
        recorder = Recorder(arguments, tmp_path)
        try:
            recorder.wait_until_recording()
            objects = bpf_objects(recorder.pid)
            time.sleep(moments.uniform(0, 0.5))
            left = helpers(recorder.pid)
            recorder.kill()
            assert recorder.finish().code == -signal.SIGKILL
        finally:
            recorder.close()
        for helper in left:
            await_ended(helper)
        assert not has_probes(target.pid)
        await_gone(objects)
    assert leaked_probes() == before


def test_the_anchor_is_detached_last(ticking: Target, tmp_path: Path) -> None:
    """The kernel may forget that a process has breakpoints with the last one: see held_probes."""
    arguments = ("--pid", str(ticking.pid), "--duration", "0.2")
    recorder = Recorder(arguments, tmp_path, command=command("stops at the anchor"))
    try:
        recorder.wait_until_stopped()
        (helper,) = helpers(recorder.pid)
        await_true(lambda: state(helper) == "T", "the helper does not stop")
        with ElfFile.open(f"/proc/{ticking.pid}/exe") as elf:
            (never_passed,) = GoBinary.open(elf).functions_named("runtime.throw")
            assert list(probed(ticking.pid)) == [never_passed.entry]
        assert end_with(recorder).code == 0
    finally:
        recorder.close()
    assert not has_probes(ticking.pid)


def test_a_profiler_killed_with_its_helper_leaves_nothing(ticking: Target, tmp_path: Path) -> None:
    """As a supervisor does, which kills the helper, too, though it has a session of its own."""
    with stopped("stops while recording", ticking, tmp_path) as recorder:
        (helper,) = helpers(recorder.pid)
        assert os.getpgid(helper) == os.getsid(helper) == helper
        for pid in (recorder.pid, helper):
            os.kill(pid, signal.SIGKILL)
        assert recorder.finish().code == -signal.SIGKILL


@pytest.mark.alone
@pytest.mark.parametrize(
    "number", [signal.SIGQUIT, *in_full(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
)
def test_the_uprobe_helper_ignores_signals(
    number: signal.Signals, target: Target, tmp_path: Path
) -> None:
    with stopped("stops while recording", target, tmp_path) as recorder:
        (helper,) = helpers(recorder.pid)
        os.kill(helper, number)
        check(target)
        finished = end_with(recorder, signal.SIGINT)
    assert finished.code == 0, finished.stderr
    assert only_profile(tmp_path).samples


def test_after_a_killed_helper_the_profile_is_written(ticking: Target, tmp_path: Path) -> None:
    with stopped("stops while recording", ticking, tmp_path) as recorder:
        (helper,) = helpers(recorder.pid)
        os.kill(helper, signal.SIGKILL)
        await_no_probes(ticking.pid)
        finished = end_with(recorder, signal.SIGINT)
    assert finished.code == 13
    assert "(ebpfprof-uprobe) was killed, which detached them" in finished.stderr
    assert "Traceback" not in finished.stderr
    only_profile(tmp_path)


def test_after_a_killed_holder_the_profile_is_written(ticking: Target, tmp_path: Path) -> None:
    with stopped("stops while recording", ticking, tmp_path) as recorder:
        (helper,) = helpers(recorder.pid)
        *_, holder = descendants(helper)
        os.kill(holder, signal.SIGKILL)
        await_ended(holder)
        finished = end_with(recorder, signal.SIGINT)
    assert finished.code == 13
    assert "(ebpfprof-holder) was killed, which detached them" in finished.stderr
    assert "Every wait was recorded" not in finished.stdout.decode() + finished.stderr
    assert "Traceback" not in finished.stderr
    only_profile(tmp_path)


def test_with_a_leaked_breakpoint_the_profile_is_written(ticking: Target, tmp_path: Path) -> None:
    arguments = ("--pid", str(ticking.pid), "--duration", "0.2")
    finished = run(*arguments, folder=tmp_path, command=command("leaves breakpoints"))
    assert finished.code == 13
    assert f"could not remove 1 breakpoint from process {ticking.pid} (at 0x401000)" in (
        finished.stderr
    )
    only_profile(tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize("how", [*in_full("stops while attaching"), "stops while detaching"])
def test_a_stopped_and_continued_profiler_continues(
    how: str, target: Target, tmp_path: Path
) -> None:
    with stopped(how, target, tmp_path) as recorder:
        signals = []
        if how in SETTING_UP:
            recorder.send(signal.SIGCONT)
            recorder.wait_until_recording()
            for _ in range(2):  # so that a whole round of waits is in the recording
                assert target.ask("check", "").startswith("ok ")
            signals = [signal.SIGINT]
        finished = end_with(recorder, *signals)
    assert finished.code == 0, finished.stderr
    assert only_profile(tmp_path).samples


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("stops before it attaches", signal.SIGINT),
        *in_full(("stops before it attaches", signal.SIGTERM)),
        *in_full(("stops while attaching", signal.SIGINT)),
        ("stops while attaching", signal.SIGHUP),
    ],
)
def test_a_signal_before_recording_aborts(
    how: str, number: signal.Signals, ticking: Target, tmp_path: Path
) -> None:
    with stopped(how, ticking, tmp_path) as recorder:
        finished = end_with(recorder, number)
    assert finished.code == 130
    assert finished.stderr == "ebpfprof: Aborted. Written: nothing.\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, *in_full(signal.SIGINT, signal.SIGHUP)])
def test_a_signal_ends_the_recording(
    number: signal.Signals, ticking: Target, tmp_path: Path
) -> None:
    with stopped("stops while recording", ticking, tmp_path) as recorder:
        finished = end_with(recorder, number)
    assert finished.code == 0, finished.stderr
    assert finished.stderr.startswith("recording ")
    assert b"Written: ticker-" in finished.stdout
    only_profile(tmp_path)


@pytest.mark.parametrize(
    "how", [*in_full("stops while recording", "stops while writing"), "stops while detaching"]
)
def test_a_second_signal_aborts(how: str, ticking: Target, tmp_path: Path) -> None:
    # Two of the same kind would become one while the profiler is stopped.
    signals = (signal.SIGINT, signal.SIGTERM)
    with stopped(how, ticking, tmp_path) as recorder:
        finished = end_with(recorder, *signals)
    assert finished.code == 130
    assert finished.stderr.endswith("ebpfprof: Aborted. Written: nothing.\n")
    assert "Traceback" not in finished.stderr
    assert os.listdir(tmp_path) == []


def test_nohup_makes_the_profiler_ignore_sighup(ticking: Target, tmp_path: Path) -> None:
    for prefix, is_ignored in (((), False), (("/usr/bin/nohup",), True)):
        arguments = ["--pid", str(ticking.pid)]
        stopping = (*prefix, *command("stops while recording"))
        recorder = Recorder(arguments, tmp_path, command=stopping)
        try:
            recorder.wait_until_stopped()
            assert ignores(recorder.pid, signal.SIGHUP) == is_ignored
        finally:
            recorder.close()


def ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"^SigIgn:\s*(\w+)$", status, re.MULTILINE)
    return bool(int(mask, 16) >> number - 1 & 1)
