"""A debugger, as far as probes meet one: it stops all threads, steps them, sets a breakpoint.

    python -m tests.kernel.debugger PID

Prints "ready PID". Commands, a line each, after which all threads are stopped but for the last two:
"attach" → "attached THREADS"; "step TIMES ADDRESS..." continues all by single instructions, until
they came to these addresses that many times together → "stepped STEPS"; "break ADDRESS TIMES" sets
a breakpoint, continues all until it was met so often, and removes it → "met"; "catch ADDRESS" does
that until a thread is about to run this instruction → "caught RIP RSP RBP FS_BASE R14"; "stop" →
"stopped"; "continue" → "continued"; "detach" → "detached". It detaches from the process when its
input closes. Addresses are hexadecimal.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.targets_run import Target

_ROOT = Path(__file__).parents[2]
_INT3 = b"\xcc"
# include/uapi/linux/ptrace.h
_CONT, _SINGLESTEP, _GETREGS, _SETREGS = 7, 9, 12, 13
_DETACH, _SEIZE, _INTERRUPT = 17, 0x4206, 0x4207
_O_TRACECLONE = 1 << 3
_WALL = 0x40000000  # os has no name for it
_RIP = 16  # the place in struct user_regs_struct, sys/user.h
_ANSWERED = (16, 19, 4, 21, 1)  # RIP, RSP, RBP, FS base, R14
_REGISTERS = struct.Struct("<27Q")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, thread: int, data: int | ctypes.Array[ctypes.c_char] = 0) -> None:
    """The system call. Raises OSError."""
    address = data if isinstance(data, int) else ctypes.addressof(data)
    if _libc.ptrace(request, thread, None, address) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace {request}: {os.strerror(code)}")


class Debugger:
    """Traces a process. What a thread was stopped by is kept until it continues."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        self._stopped: dict[int, int] = {}  # thread -> the signal that it is to get
        self._running: set[int] = set()

    def attach(self) -> int:
        """Trace all threads and stop them; returns how many there are."""
        while new := self._threads() - set(self._stopped):  # some may be made meanwhile
            for thread in new:
                # One that a traced thread has just made is traced already.
                with suppress(PermissionError, ProcessLookupError):
                    ptrace(_SEIZE, thread, _O_TRACECLONE)
                self._running.add(thread)
            self.stop()
        return len(self._stopped)

    def stop(self) -> None:
        """Stop all threads."""
        for thread in self._running:
            with suppress(ProcessLookupError):  # its end is still to be reported
                ptrace(_INTERRUPT, thread)
        while self._running:
            self._wait()
        # The trap of a step or a breakpoint may be on its way still: it is not the program's.
        for thread in list(self._stopped):
            while thread in self._stopped and self._has_trap(thread):
                self._resume(_CONT, thread)
                while thread in self._running:
                    self._wait()

    def go_on(self) -> None:
        """Let all continue."""
        for thread in list(self._stopped):
            self._resume(_CONT, thread)

    def go_on_until(self, is_over: Callable[[], bool]) -> None:
        """Let all continue, and pass on what they are stopped by, until it is over."""
        self.go_on()
        while not is_over():
            while self._wait(os.WNOHANG):
                self.go_on()

    def step(self, times: int, addresses: set[int]) -> int:
        """Step all threads until they came to the addresses so often; returns the steps taken."""
        steps = 0
        for thread in list(self._stopped):
            self._resume(_SINGLESTEP, thread)
        while times > 0:
            stopped = self._wait()
            if stopped is not None:
                steps += 1
                times -= self._registers(stopped)[_RIP] in addresses
                self._resume(_SINGLESTEP, stopped)
        self.stop()
        return steps

    def meet(self, address: int, times: int) -> None:
        """Set a breakpoint, let all continue until it was met so often, and take it away."""
        original = os.pread(self._memory, 1, address)
        os.pwrite(self._memory, _INT3, address)
        self.go_on()
        while times > 0:
            thread = self._wait()
            if thread is None:
                continue
            if self._is_behind(thread, address):
                times -= 1
                self.stop()
                self._pass(original, address)
            self.go_on()
        self.stop()
        self._pass(original, address)
        os.pwrite(self._memory, original, address)

    def catch(self, address: int) -> list[int]:
        """Continue all until one is about to run an instruction again; returns its registers."""
        for thread in list(self._stopped):
            if self._registers(thread)[_RIP] == address:
                self._step_over(thread)
        original = os.pread(self._memory, 1, address)
        os.pwrite(self._memory, _INT3, address)
        self.go_on()
        caught = None
        while caught is None or not self._is_behind(caught, address):
            if caught is not None:
                self.go_on()
            caught = self._wait()
        self.stop()
        os.pwrite(self._memory, original, address)
        for thread in list(self._stopped):
            if self._is_behind(thread, address):
                self._put_back(thread, address)
        return self._registers(caught)

    def detach(self) -> None:
        """Detach from all threads, which continue."""
        self.stop()
        for thread in list(self._stopped):
            self._resume(_DETACH, thread)
        self._running.clear()

    def _pass(self, original: bytes, address: int) -> None:
        """Take those that met the breakpoint past it, while the others are stopped."""
        behind = [thread for thread in self._stopped if self._is_behind(thread, address)]
        os.pwrite(self._memory, original, address)
        for thread in behind:
            self._put_back(thread, address)
            self._step_over(thread)
        os.pwrite(self._memory, _INT3, address)

    def _put_back(self, thread: int, address: int) -> None:
        """To the instruction in place of which the breakpoint stood that it met."""
        registers = self._registers(thread)
        registers[_RIP] = address
        ptrace(_SETREGS, thread, ctypes.create_string_buffer(_REGISTERS.pack(*registers)))
        self._stopped[thread] = 0  # the breakpoint's own signal

    def _step_over(self, thread: int) -> None:
        """Let it run one instruction, while the others are stopped."""
        self._resume(_SINGLESTEP, thread)
        while thread in self._running:
            self._wait()

    def _is_behind(self, thread: int, address: int) -> bool:
        is_trap = self._stopped.get(thread) == signal.SIGTRAP
        return is_trap and self._registers(thread)[_RIP] == address + 1

    def _has_trap(self, thread: int) -> bool:
        status = Path(f"/proc/{thread}/status").read_text()
        (pending,) = re.findall(r"^SigPnd:\s*(\w+)$", status, re.MULTILINE)
        return bool(int(pending, 16) >> signal.SIGTRAP - 1 & 1)

    def _threads(self) -> set[int]:
        return {int(name) for name in os.listdir(f"/proc/{self._pid}/task")}

    def _registers(self, thread: int) -> list[int]:
        room = ctypes.create_string_buffer(_REGISTERS.size)
        ptrace(_GETREGS, thread, room)
        return list(_REGISTERS.unpack(room.raw))

    def _resume(self, request: int, thread: int) -> None:
        number = self._stopped.pop(thread)
        ptrace(request, thread, 0 if number == signal.SIGTRAP else number)
        self._running.add(thread)

    def _wait(self, how: int = 0) -> int | None:
        """Wait for a thread to stop; None if it ended instead."""
        thread, status = os.waitpid(-1, _WALL | how)
        if not thread:
            return None
        self._running.discard(thread)
        if not os.WIFSTOPPED(status):
            self._stopped.pop(thread, None)
            return None
        is_event = status >> 16
        self._stopped[thread] = 0 if is_event else os.WSTOPSIG(status)
        return thread


@contextmanager
def debugger(pid: int) -> Iterator[Target]:
    """A debugger in a process of its own, which obeys these commands."""
    arguments = ("-m", "tests.kernel.debugger", str(pid))
    with Target.start(Path(sys.executable), *arguments, env={"PYTHONPATH": str(_ROOT)}) as running:
        yield running


@contextmanager
def traced(pid: int) -> Iterator[Target]:
    """The same; it has stopped all threads, and detaches from them in the end."""
    with debugger(pid) as running:
        running.ask("attach", "attached")
        yield running
        running.ask("detach", "detached")


def main(arguments: Sequence[str]) -> None:
    """Obey commands until the input closes."""
    debugger = Debugger(int(arguments[0]))
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        match line.split():
            case ["attach"]:
                answer = f"attached {debugger.attach()}"
            case ["step", times, *addresses]:
                places = {int(each, 16) for each in addresses}
                answer = f"stepped {debugger.step(int(times), places)}"
            case ["break", address, times]:
                debugger.meet(int(address, 16), int(times))
                answer = "met"
            case ["catch", address]:
                registers = debugger.catch(int(address, 16))
                answer = " ".join(["caught", *(f"{registers[at]:x}" for at in _ANSWERED)])
            case ["stop"]:
                debugger.stop()
                answer = "stopped"
            case ["continue"]:
                print("continued", flush=True)
                debugger.go_on_until(lambda: bool(select.select([sys.stdin], [], [], 0.005)[0]))
                continue
            case _:
                debugger.detach()
                answer = "detached"
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
