"""A process that is made up: its memory, its files and its threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Final

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.memory import Memory
from tests.images.pages import Part, SavedBytes, SavedFiles
from tests.images.target import SavedTarget, Shown

_COUNT: Final = 16
_POLLED: Final = 0xC000_0010_00
CALLS: Final = (
    b"0 0x12 0xc000012345 0x1 0x0 0x0 0x0 0xc000054d60 0x40a2b4\n",
    b"257 0xffffff9c 0xc000012345 0xffffffffffffffff 0x0 0x0 0x0 0xc000054d60 0x40a2b4\n",
    b"-1 0xc000054d60 0x40a2b4\n",
    b"running\n",
    b"999 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n",
)


def made_up_memory(parts: Iterable[Part]) -> Memory:
    """The memory of a process that has nothing else."""
    return SavedTarget(Shown("/usr/bin/frames", SavedBytes(parts))).memory


def made_up_process(go: GoTarget, parts: Iterable[Part]) -> GoTarget:
    """The same program, run by a process with this memory, some sockets and some threads."""
    return replace(go, target=SavedTarget(Shown("/usr/bin/frames", SavedBytes(parts), _files())))


@cache
def _files() -> SavedFiles:
    """Sockets whose pollDescs, epoll says, are pieces of goroutines; threads in system calls."""
    tcp, epoll = b"sl local\n", b""
    files, links = {}, {"fd/99": "anon_inode:[eventpoll]"}
    for number in range(_COUNT):
        word = (_POLLED + 8 * number) >> 9 << 24
        epoll += b"tfd: %8d events: 80002019 data: %16x  pos:0 ino:1 sdev:9\n" % (number, word)
        tcp += b"%d: 0100007F:0050 00000000:0000 01 0:0 0:0 0 0 0 %d 1\n" % (number, number + 1)
        links[f"fd/{number}"] = f"socket:[{number + 1}]"
        files[f"task/{number}/status"] = b"NSpid:\t%d\n" % number
        files[f"task/{number}/syscall"] = CALLS[number % len(CALLS)]
    return SavedFiles({**files, "fdinfo/99": epoll, "net/tcp": tcp}, links)
