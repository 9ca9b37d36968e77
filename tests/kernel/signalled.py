"""Run `ebpfprof` so that it gets signals at certain moments of what its main thread does.

    python tests/kernel/signalled.py MOMENTS FILE ARGUMENT...

MOMENTS are as SIGTERM@STEP, with commas between them: each comes when the step is reached. A step
is a number of calls of functions since the beginning; or MODULE:FUNCTION, its first call; or an
audit event of Python, such as os.fork, or import=MODULE; or two of the latter with > in between:
the second one after the first. FILE gets how many calls there were, and the steps that were not
reached. Signals that come before the command can count them wait for it, as if its parent had
blocked them. SIGUSR1 shows where it is.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

SCRIPT = Path(__file__).resolve()
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Moment = tuple[signal.Signals, str]
"""A signal, and the step at which it comes."""


def command(moments: Sequence[Moment], counted: Path) -> tuple[str, ...]:
    """The command to run in place of `ebpfprof`."""
    words = ",".join(f"{number.name}@{step}" for number, step in moments)
    return (sys.executable, str(SCRIPT), words, str(counted))


class Steps:
    """Looks for steps, and sends the signals that belong to them."""

    def __init__(self, moments: str) -> None:
        pairs = [moment.split("@") for moment in moments.split(",") if moment]
        named = [(signal.Signals[n], step.split(">")) for n, step in pairs if not step.isdecimal()]
        self._named = named
        functions = (step.rpartition(":")[2] for _, steps in named for step in steps)
        self._functions = frozenset(functions)
        self._numbered = sorted((int(s), signal.Signals[n]) for n, s in pairs if s.isdecimal())
        self._pid = os.getpid()
        self.calls = 0

    @property
    def left(self) -> str:
        """The signals that were not sent."""
        return " ".join(
            n.name for n in (*(n for n, _ in self._named), *(n for _, n in self._numbered))
        )

    def watch(self) -> None:
        sys.addaudithook(self._audit)
        sys.setprofile(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        # There Python itself looks whether a signal came. Just before a function of C it does not:
        # it would miss the end of a `with`.
        if event != "call" and event != "c_return":
            return
        self.calls += 1
        if self._numbered and self.calls >= self._numbered[0][0]:
            self._send(self._numbered.pop(0)[1])
        # Most calls end here: a name is made of few of them.
        if self._named and event == "call" and frame.f_code.co_qualname in self._functions:
            self._reach(f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._named:
            self._reach(f"{event}={arguments[0]}" if event == "import" else event)

    def _reach(self, step: str) -> None:
        for moment in list(self._named):
            number, steps = moment
            if step == steps[0]:
                del steps[0]
                if not steps:
                    self._named.remove(moment)
                    self._send(number)

    def _send(self, number: signal.Signals) -> None:
        if os.getpid() == self._pid:  # what we fork continues with this
            os.kill(self._pid, number)


if __name__ == "__main__":
    steps, file = Steps(sys.argv[1]), sys.argv[2]
    del sys.argv[1:3]
    faulthandler.register(signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    from ebpfprof.__main__ import main

    try:
        steps.watch()
        main()
    finally:
        sys.setprofile(None)
        Path(file).write_text(f"{steps.calls} {steps.left}")
