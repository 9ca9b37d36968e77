"""The threads of a target: what each does, and for which goroutine.

We read the runtime's list of threads, all goroutines, and the list again, while the target runs. A
thread whose runtime.m is the same before and after did what it says. The list only loses threads of
goroutines that ended while they were locked to theirs (runtime/proc.go, mexit, Go 1.19 to 1.27).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.thread_list import RuntimeThread, ThreadList
from ebpfprof.process.system_calls import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget

RUNNING: Final = "running"
IN_CALL: Final = "syscall"
IN_C: Final = "in C"
IDLE: Final = "idle"
LOCKED: Final = "locked"
SCHEDULING: Final = "scheduling"
RUNTIME: Final = "the runtime's own"
NOT_GOS: Final = "not Go's"
MOVING: Final = "changing"
HELD: Final = (IN_CALL, IN_C, LOCKED)
"""The states of threads that can't run another goroutine, so that Go makes new ones."""
_OWN: Final = ("runtime.sysmon", "runtime.templateThread")


class GoThread(NamedTuple):
    """A thread, what it does, and the goroutine that has it, if there is one.

    `call` is the name of the system call that it is in, "" if that is not known. `creation` has the
    return addresses of who made it, as far as Go records them.
    """

    state: str
    call: str
    goroutine: Goroutine | None
    creation: tuple[int, ...]
    function: str = ""
    """What one of the runtime's own threads runs."""


@dataclass(frozen=True, slots=True)
class AllThreads:
    """The threads of Go's list that the kernel has, and how many it has besides these."""

    threads: list[GoThread]
    others: int

    @property
    def count(self) -> int:
        """How many threads there are."""
        return len(self.threads) + self.others


class ThreadScanner:
    """Reads the threads of one target, any number of times."""

    def __init__(self, go: GoTarget) -> None:
        """Open the target's memory.

        Raises TargetGone, PermissionDenied, or GoTableError (there is no list of threads).
        """
        self._list = ThreadList(go.binary, go.load_bias, go.target.pid)
        self._goroutines = GoroutineScanner(go, has_labels=False)
        self._threads = go.target.threads()
        self._own = {
            function.entry + go.load_bias: name
            for name in _OWN
            for function in go.binary.functions_named(name)
        }

    def machines(self) -> list[RuntimeThread]:
        """Go's list of threads alone. Raises TargetGone or UnreadableMemory."""
        return self._list.read(self._goroutines.memory)

    def scan(self) -> AllThreads:
        """Read all threads now. Raises TargetGone or UnreadableMemory."""
        before = {machine.address: machine for machine in self.machines()}
        goroutines = {
            goroutine.address: goroutine for goroutine in self._goroutines.scan().goroutines
        }
        numbers = self._threads.numbers()
        after = self.machines()
        threads = [
            self._thread(words, before.get(words.address), goroutines, numbers)
            for words in after
            if words.thread in numbers
        ]
        return AllThreads(threads, max(0, len(numbers) - len(threads)))

    def _thread(
        self,
        now: RuntimeThread,
        before: RuntimeThread | None,
        goroutines: Mapping[int, Goroutine],
        numbers: Mapping[int, int],
    ) -> GoThread:
        state = self._state(now)
        if state == RUNTIME:
            return GoThread(state, "", None, now.creation, self._own[now.start])
        goroutine = goroutines.get(now.locked if state == LOCKED else now.goroutine)
        if state in (RUNNING, IN_CALL) and goroutine is not None:
            state = IN_CALL if goroutine.state == IN_CALL else RUNNING
        is_settled = before == now and (goroutine is None) == (state not in (*HELD, RUNNING))
        if goroutine is not None and state != LOCKED:
            is_settled &= goroutine.words.thread == now.address
        if not is_settled:
            return GoThread(RUNNING if now.processor else MOVING, "", None, now.creation)
        call = self._call(numbers[now.thread]) if state in (IN_CALL, IN_C) else ""
        return GoThread(state, call, goroutine, now.creation)

    def _state(self, machine: RuntimeThread) -> str:
        if machine.start in self._own:
            return RUNTIME
        if machine.in_c and machine.goroutine:
            return IN_C
        if machine.goroutine:
            return RUNNING
        if machine.locked:
            return LOCKED
        return SCHEDULING if machine.processor else IDLE

    def _call(self, thread: int) -> str:
        state = self._threads.state(thread)
        return name_of(state.number) if state and not state.runs and state.number >= 0 else ""
