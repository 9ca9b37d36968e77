"""What the costs are measured of: Go's own profilers, ours, other people's; as data."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import bpftrace, floor
from tests.bench.costresults import BOUNDED, FLOOR
from tests.bench.liverecorder import LiveRecorder
from tests.bench.workloads import Running, program


class Profiler:
    """Something that can be switched on and off for a workload, and is gone in between."""

    def learn(self, running: Running) -> None:
        """Get to know a workload before it counts."""

    def on(self, running: Running) -> None:
        """Begin to record."""

    def off(self, running: Running) -> None:
        """Stop that."""

    def own_ns(self) -> int:
        """The CPU time that its own processes have used so far; 0 of one that is not ours."""
        return 0


class OfGo(Profiler):
    """Go's own, in the target."""

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def on(self, running: Running) -> None:
        running.target.ask(f"own {self._settings}", "own")

    def off(self, running: Running) -> None:
        running.target.ask("own", "own")


class Ours(Profiler):
    """ebpfprof, loaded once: what is measured is what it costs once it records."""

    def __init__(self, held: ExitStack, *kinds: str, **options: float) -> None:
        self._recorder = LiveRecorder(held, kinds=kinds, **options)

    def learn(self, running: Running) -> None:
        self._recorder.order("add", running.target.pid)

    def on(self, running: Running) -> None:
        self._recorder.order("start", running.target.pid)

    def off(self, running: Running) -> None:
        self._recorder.order("stop", running.target.pid)

    def own_ns(self) -> int:
        return self._recorder.cpu_ns()


class Entered(Profiler):
    """Something that records while a context is entered."""

    def __init__(self, enter: Callable[[Running], AbstractContextManager[object]]) -> None:
        self._enter = enter
        self._held = ExitStack()

    def on(self, running: Running) -> None:
        self._held.enter_context(self._enter(running))

    def off(self, running: Running) -> None:
        self._held.close()


class Perf(Profiler):
    """`perf record -g`, started each time: events that wait disabled would cost bare rounds.

    Without the names of BPF programs, for which it would take most of a second to end.
    """

    def __init__(self, hz: int, folder: str) -> None:
        self._hz = hz
        self._file = Path(folder) / f"{hz}.data"
        self._process: subprocess.Popen[bytes] | None = None

    def on(self, running: Running) -> None:
        orders, ordering = os.pipe()
        answers, answering = os.pipe()
        command = ["perf", "record", "-q", "-B", "-N", "--no-bpf-event", "-D", "-1"]
        command += ["-e", "cpu-clock", "-F", str(self._hz), "-g", "-p", str(running.target.pid)]
        command += ["-o", str(self._file)]
        command += [f"--control=fd:{orders},{answering}"]
        fds = (orders, answering)
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=fds)
        for fd in fds:
            os.close(fd)
        os.write(ordering, b"enable\n")
        answer = os.read(answers, 16)
        os.close(ordering)
        os.close(answers)
        if not answer.startswith(b"ack"):
            raise RuntimeError(f"perf did not start: {self._process.wait()}")

    def off(self, running: Running) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        if not self._file.stat().st_size:
            raise RuntimeError("perf wrote nothing")
        self._process = None


@dataclass(frozen=True)
class Arm:
    """A profiler and how it is set; `only` on some workloads, or on all.

    Its rounds take `round_s`, and it has `turns` times as many as others. One that `settles` has
    some time before each.
    """

    name: str
    title: str
    make: Callable[[ExitStack], Profiler]
    only: tuple[str, ...] = ()
    round_s: float = 0.25
    turns: int = 1
    settles: bool = False

    def is_for(self, workload: str) -> bool:
        """Whether it is measured on a workload."""
        return not self.only or workload in self.only


def _of_go(name: str, title: str, settings: str, *only: str) -> Arm:
    return Arm(name, f"Go's own: {title}", lambda _held: OfGo(settings), only)


def _ours(name: str, title: str, *kinds: str, only: tuple[str, ...] = (), hz: int = 99) -> Arm:
    return Arm(name, f"ebpfprof: {title}", lambda held: Ours(held, *kinds, hz=hz), only)


def _one_in_eight(name: str, *kinds: str) -> Arm:
    title = f"ebpfprof: {' and '.join(kinds)}, one wait in eight"
    return Arm(name, title, lambda held: Ours(held, *kinds, one_in_eight=True))


def _bounded(name: str, percent: float, *kinds: str) -> Arm:
    title = f"ebpfprof: {', '.join(kinds)}, at most {percent} %"
    return Arm(
        f"{BOUNDED}-{name}",
        title,
        lambda held: Ours(held, *kinds, max_overhead=percent),
        round_s=1.0,
        turns=2,
        settles=True,
    )


def _bpftrace(name: str, title: str, script: str, *only: str) -> Arm:
    def enter(running: Running) -> AbstractContextManager[object]:
        return bpftrace.attached(running.target.pid, program(), script)

    return Arm(name, f"bpftrace: {title}", lambda _held: Entered(enter), only)


def _floor(running: Running) -> AbstractContextManager[object]:
    return floor.attached(running.target.pid)


def _perf(name: str, title: str, hz: int, *only: str) -> Arm:
    def make(held: ExitStack) -> Profiler:
        return Perf(hz, held.enter_context(tempfile.TemporaryDirectory()))

    return Arm(name, f"perf: {title}", make, only)


ARMS: Final = (
    _of_go("go-block-1", "block, rate 1", "block=1"),
    _of_go("go-block-10000", "block, rate 10,000", "block=10000"),
    _of_go("go-mutex-1", "mutex, fraction 1", "mutex=1"),
    _of_go("go-cpu", "CPU, 100 Hz", "cpu=1"),
    _of_go("go-block-10000-cpu", "block, rate 10,000, and CPU", "block=10000 cpu=1", "http"),
    _of_go("go-goroutine-99", "goroutine profile 99 times a second, as fgprof", "goroutine=99"),
    _ours("wall", "wall, 100 samples a second", "wall"),
    Arm(FLOOR, "empty programs at the places of block", lambda _held: Entered(_floor)),
    _ours("block", "block", "block"),
    _ours("mutex", "mutex", "mutex", only=("mutex", "rwmutex")),
    _ours("block-mutex", "block and mutex", "block", "mutex"),
    _one_in_eight("eighth", "block"),
    _one_in_eight("eighth-mutex", "block", "mutex"),
    _ours("wakers", "block, by who woke", "wakers"),
    _ours("wakers-mutex", "mutex, and block by who woke", "wakers", "mutex", only=("mutex",)),
    _ours("cpu", "CPU, 99 Hz", "cpu"),
    _ours("cpu-999", "CPU, 999 Hz", "cpu", hz=999, only=("http", "garbage")),
    _ours("block-cpu", "block and CPU", "block", "cpu", only=("http",)),
    _bounded("all", 1, "block", "mutex", "cpu"),
    _bounded("wakers", 1, "block", "mutex", "wakers"),
    _bpftrace("bpftrace-block", "block", bpftrace.BLOCK),
    _bpftrace("bpftrace-wakers", "block, by who woke", bpftrace.WAKERS),
    _bpftrace("bpftrace-mutex", "mutex", bpftrace.MUTEX, "mutex", "rwmutex"),
    _perf("perf", "CPU, record -g, 99 Hz", 99, "http", "garbage"),
)
