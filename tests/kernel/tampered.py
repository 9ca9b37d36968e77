"""Run `ebpfprof` with one of its functions tampered with, so that it stops or fails in the midst.

    python tests/kernel/tampered.py HOW ARGUMENT...

What stops sends itself SIGSTOP, and continues after SIGCONT.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from ebpfprof.__main__ import main
from ebpfprof.errors import AttachFailed
from ebpfprof.export.tables import largest
from ebpfprof.kernel import probe_holders, uprobe_helper
from ebpfprof.kernel.held_probes import HeldProbes
from ebpfprof.kernel.probe_holders import Holder
from ebpfprof.process.launch import LaunchedProgram
from ebpfprof.process.process import Target
from ebpfprof.profilers.report_builder import Report
from ebpfprof.profilers.waits import collector, wait_stacks
from ebpfprof.profilers.waits.budgeted_waits import BudgetedWaits
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.recording.session import Session
from ebpfprof.system.channel import Frame, MessageChannel
from symbolizer import GoBinary, allowance
from symbolizer.codeanalysis.runtime_functions import unknown_code
from symbolizer.codeanalysis.tracked_waits import TrackedWaitSites
from symbolizer.locks import names


def command(how: str, verb: str = "attach") -> tuple[str, ...]:
    """The command to run in place of `ebpfprof VERB`."""
    assert how in TAMPERINGS
    return (sys.executable, str(Path(__file__).resolve()), how, verb)


def tamper(owner: object, name: str, other: object) -> None:
    setattr(owner, name, other)


def stop() -> None:
    # To this very thread: it would continue for a while after a signal that another one took.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def stop_before(owner: object, name: str) -> None:
    original = getattr(owner, name)

    def tampered(*args: object, **kwargs: object) -> object:
        stop()
        return original(*args, **kwargs)

    tamper(owner, name, tampered)


def stop_between_probes() -> None:
    """The profiler stops while it waits for its helper, which continues: probes are in."""
    original, profiler = HeldProbes.attach, os.getpid()

    def attach(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        original(*args, **kwargs)
        os.kill(profiler, signal.SIGSTOP)

    tamper(HeldProbes, "attach", attach)


def stop_while_detaching() -> None:
    """Half of the probes are out; the profiler and its helper stop."""
    original, profiler = probe_holders.end, os.getpid()

    def end(holders: Sequence[Holder]) -> bool:
        tamper(probe_holders, "end", original)
        half = len(holders) // 2
        were_in = original(holders[:half])
        os.kill(profiler, signal.SIGSTOP)
        stop()
        return original(holders[half:]) and were_in

    tamper(probe_holders, "end", end)


def stop_at_the_anchor() -> None:
    """All probes are out but the one that the helper has detached last; both stop."""
    original, profiler = HeldProbes.take_anchor, os.getpid()

    def take_anchor(held: HeldProbes) -> list[Holder]:
        os.kill(profiler, signal.SIGSTOP)
        stop()
        return original(held)

    tamper(HeldProbes, "take_anchor", take_anchor)


def end_while_probes_are_attached() -> None:
    """Ctrl-C comes when the probes of one wait in eight are to be attached.

    They are attached once the recording is about to end, which has to wait for them.
    """
    attach, end = WaitsCollector.attach_one_in_eight, BudgetedWaits.end
    is_ending = threading.Event()

    def attach_late(*args: Any, **options: Any) -> int:  # noqa: ANN401 - passed on
        tamper(WaitsCollector, "attach_one_in_eight", attach)
        os.kill(os.getpid(), signal.SIGINT)
        is_ending.wait()
        return attach(*args, **options)

    def end_and_say(*args: Any) -> None:  # noqa: ANN401 - passed on
        is_ending.set()
        end(*args)

    tamper(WaitsCollector, "attach_one_in_eight", attach_late)
    tamper(BudgetedWaits, "end", end_and_say)


def find_no_places() -> None:
    """The code where Go's scheduler tracks a wait looks like none that we know."""

    def none(_: GoBinary) -> TrackedWaitSites:
        raise unknown_code("no place in runtime.casgstatus where a tracked wait begins")

    tamper(collector, "tracked_wait_sites", none)


def leave_breakpoints() -> None:
    """The kernel says that it could not remove a breakpoint, and fails at it again."""
    tamper(HeldProbes, "leftovers", lambda held: [0x401000])


def die_while_the_helper_works(request: str) -> None:
    """Be killed as soon as the helper has been asked for something; says which helper it is."""
    original = MessageChannel.ask

    def ask(channel: MessageChannel, asked: str, *args: Any, **kwargs: Any) -> Frame:  # noqa: ANN401 - passed on
        if asked == request:
            (child,) = (c for c in psutil.Process().children() if c.name() == uprobe_helper.NAME)
            print("helper", child.pid, file=sys.stderr, flush=True)
            tamper(MessageChannel, "result", lambda channel: os.kill(os.getpid(), signal.SIGKILL))
        return original(channel, asked, *args, **kwargs)

    tamper(MessageChannel, "ask", ask)


def stop_while_writing() -> None:
    """Half of a file is written: the kernel may write less than it is asked for."""
    original = os.write

    def write(fd: int, data: bytes) -> int:
        if not os.readlink(f"/proc/self/fd/{fd}").startswith(f"{os.getcwd()}/"):
            return original(fd, data)
        tamper(os, "write", original)
        written = original(fd, data[: len(data) // 2])
        stop()
        return written

    tamper(os, "write", write)


def fail_at(owner: object, name: str) -> None:
    def tampered(*args: object, **kwargs: object) -> None:
        raise KeyError("a key\nthat is not there")

    tamper(owner, name, tampered)


def notice_no_replacement() -> None:
    """A program replaces itself just after it was inspected: the next step reads open waits."""

    original = Session.wait

    def wait(_: Session, _duration_s: float, should_stop: Callable[[float], bool]) -> None:
        _until(lambda: should_stop(0))
        tamper(Session, "wait", original)

    tamper(Session, "wait", wait)


def leave_late() -> None:
    """A program that is to be left alone replaces itself just before, as a file `left` shows."""
    original = LaunchedProgram.leave

    def leave(child: LaunchedProgram) -> None:
        Path("left").touch()
        _until(lambda: child.is_stopped)
        original(child)

    tamper(LaunchedProgram, "leave", leave)


def fail_recording() -> None:
    """The recording fails; only then the program replaces itself, as a file `left` shows."""

    def wait(_: Session, _duration_s: float, _should_stop: Callable[[float], bool]) -> None:
        Path("left").touch()
        raise AttachFailed("made up")

    tamper(Session, "wait", wait)


def run_out_of_time_for_names() -> None:
    """What reading the files of a target may take is used up by the time the recording ends."""
    original = Session.finish

    def finish(session: Session) -> list[Report]:
        for target in session.targets:
            target.allowance.max_cpu_s = 0
        return original(session)

    tamper(allowance, "SHARE", 0)
    tamper(Session, "finish", finish)


def have_no_time_to_inspect() -> None:
    """It is used up at once."""
    original = Target.__init__

    def opened(target: Target, *args: Any) -> None:  # noqa: ANN401 - passed on
        original(target, *args)
        target.allowance.max_cpu_s = 0

    tamper(allowance, "SHARE", 0)
    tamper(Target, "__init__", opened)


def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.001)  # looks again: it is about another process


TAMPERINGS: dict[str, Callable[[], None]] = {
    "stops before it attaches": lambda: stop_before(Session, "start"),
    "stops while attaching": stop_between_probes,
    "stops while recording": lambda: stop_before(Session, "wait"),
    "stops while detaching": stop_while_detaching,
    "stops while writing": stop_while_writing,
    "stops at the anchor": stop_at_the_anchor,
    "leaves breakpoints": leave_breakpoints,
    "finds no places": find_no_places,
    "ends while probes are attached": end_while_probes_are_attached,
    "dies while attaching": lambda: die_while_the_helper_works("attach"),
    "dies while detaching": lambda: die_while_the_helper_works("detach"),
    "notices no replacement": notice_no_replacement,
    "leaves late": leave_late,
    "fails while recording": fail_recording,
    "runs out of time for names": run_out_of_time_for_names,
    "has no time to inspect": have_no_time_to_inspect,
    "fails to name frames": lambda: fail_at(wait_stacks.StackTranslator, "stack"),
    "fails to name locks": lambda: fail_at(names.LockNames, "field"),
    "fails to show the table": lambda: fail_at(largest, "render"),
}

if __name__ == "__main__":
    how = sys.argv.pop(1)
    TAMPERINGS[how]()
    main()
