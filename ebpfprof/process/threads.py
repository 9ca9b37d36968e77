"""What the threads of a process do in the kernel now: read from /proc, without stopping them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ebpfprof.process.proc_files import ProcFiles

_NUMBERS: Final = re.compile(rb"^NSpid:(.*?)\s(\d{1,10})$", re.MULTILINE)
_WORD: Final = re.compile(rb"0x[0-9a-f]{1,16}")
_CALL: Final = re.compile(rb"(-?\d{1,10})((?: 0x[0-9a-f]{1,16}){2,8})\s*")
_ARGUMENTS: Final = 6


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What a thread does: it `runs`, or waits for a processor; or it waits in system call `number`.

    `number` is -1 outside of a system call: for a page fault, for example. `arguments` are the six
    registers of arguments of a system call, as numbers without a sign.
    """

    runs: bool
    number: int = -1
    arguments: tuple[int, ...] = ()


class Threads:
    """The threads of a process. What this user may not read, or is gone, is None."""

    def __init__(self, files: ProcFiles) -> None:
        self._files = files
        self._are_the_same = False
        """Whether threads have the same numbers here as in the process's own pid namespace."""

    def numbers(self) -> dict[int, int]:
        """The number of each thread here, by the one in the process's own pid namespace."""
        numbers = {}
        for name in self._files.names("task"):
            if self._are_the_same:
                numbers[int(name)] = int(name)
            elif match := _NUMBERS.search(self._files.read(f"task/{name}/status")):
                numbers[int(match[2])] = int(name)
                # The threads of a process share a pid namespace (Linux kernel/fork.c,
                # copy_process): if the namespace of one is ours, no other file is needed.
                self._are_the_same = not match[1]
        return numbers

    def state(self, thread: int) -> ThreadState | None:
        """What a thread does, by its number here."""
        return state_of(self._files.read(f"task/{thread}/syscall"))


def state_of(text: bytes) -> ThreadState | None:
    """The state in the text of /proc/PID/task/TID/syscall (Linux fs/proc/base.c)."""
    if text.strip() == b"running":
        return ThreadState(runs=True)
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    number = int(match[1])
    words = [int(word, 16) for word in _WORD.findall(match[2])]
    arguments = tuple(words[:_ARGUMENTS]) if number >= 0 and len(words) > _ARGUMENTS else ()
    return ThreadState(runs=False, number=max(number, -1), arguments=arguments)
