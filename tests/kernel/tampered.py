"""Run `ebpfprof` with one of its functions tampered with, so that it stops or fails in the midst.

    python tests/kernel/tampered.py HOW ARGUMENT...

What stops sends itself SIGSTOP, and goes on after SIGCONT.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebpfprof import output, perf, stacks, uprobemulti
from ebpfprof.__main__ import main
from ebpfprof.export import summary
from ebpfprof.loader import Program
from ebpfprof.session import Session
from symbolizer import locknames


def command(how: str, verb: str = "attach") -> tuple[str, ...]:
    """The command to run in place of `ebpfprof VERB`."""
    assert how in TAMPERINGS
    return (sys.executable, str(Path(__file__).resolve()), how, verb)


def tamper(owner: object, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_before(owner: Any, name: str) -> None:  # noqa: ANN401
    original = getattr(owner, name)

    def tampered(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        stop()
        return original(*args, **kwargs)

    tamper(owner, name, tampered)


def stop_between_probes() -> None:
    linked = 0

    def stopping(original: Callable[..., int]) -> Callable[..., int]:
        def link(*args: Any) -> int:  # noqa: ANN401
            nonlocal linked
            fd = original(*args)
            linked += 1
            if linked == 3:
                stop()
            return fd

        return link

    # One or the other puts the probes in, depending on the kernel.
    tamper(perf, "link_program", stopping(perf.link_program))
    tamper(uprobemulti, "link", stopping(uprobemulti.link))


def stop_while_detaching() -> None:
    original = Program.detach

    def detach(program: Program) -> None:
        tamper(Program, "detach", original)  # what closes it detaches again
        (fds,) = program._probe_fds.values()
        for fd in reversed(fds[len(fds) // 2 :]):
            os.close(fd)
        del fds[len(fds) // 2 :]
        stop()
        original(program)

    tamper(Program, "detach", detach)


def stop_while_writing() -> None:
    original = output._write_all

    def write_all(fd: int, data: bytes) -> None:
        original(fd, data[: len(data) // 2])
        stop()
        original(fd, data[len(data) // 2 :])

    tamper(output, "_write_all", write_all)


def fail(owner: Any, name: str) -> None:  # noqa: ANN401
    def tampered(*args: object, **kwargs: object) -> None:
        raise KeyError("a key\nthat is not there")

    tamper(owner, name, tampered)


TAMPERINGS: dict[str, Callable[[], None]] = {
    "stops before it attaches": lambda: stop_before(Session, "start"),
    "stops while attaching": stop_between_probes,
    "stops while recording": lambda: stop_before(Session, "wait"),
    "stops while detaching": stop_while_detaching,
    "stops while writing": stop_while_writing,
    "fails to name frames": lambda: fail(stacks.StackTranslator, "stack"),
    "fails to name locks": lambda: fail(locknames.LockNames, "field"),
    "fails to show the table": lambda: fail(summary, "render"),
}

if __name__ == "__main__":
    how = sys.argv.pop(1)
    TAMPERINGS[how]()
    main()
