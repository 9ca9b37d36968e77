"""Names of C++ and Rust as in the source.

A mangled name may refer back to parts of itself, which refer back: 300 characters can expand to
2**30. The demangler libraries expand them until no memory is left. So they run in a child process
with limits of memory, and of CPU time for each name.
"""

import atexit
import ctypes
import os
import re
import resource
import select
import signal
import subprocess
import sys
from functools import cache
from typing import IO, Final

_MAX_NAME_CHARS: Final = 4096
_MAX_ANSWER_BYTES: Final = 1 << 16
_MAX_MEMORY_BYTES: Final = 256 << 20
_MAX_CPU_S: Final = 0.5
_MAX_WAIT_MS: Final = 10_000
MAX_STARTS: Final = 8
_PR_SET_NO_NEW_PRIVS: Final = 38  # include/uapi/linux/prctl.h
_CAPABILITY_VERSION_3: Final = 0x2008_0522  # include/uapi/linux/capability.h
_RUST: Final = re.compile(r"_R[A-Z]|_ZN.*17h[0-9a-f]{16}E")
_RUST_HASH: Final = re.compile(r"::h[0-9a-f]{16}$")
_COUNTED: Final = re.compile(r"\{(\w+):#(\d+)\}")
_OPTIMISER: Final = re.compile(r"\.llvm\.[0-9A-F]+$")


@cache
def demangled(name: str) -> str:
    """Return the demangled name; any other name as it is.

    C++ by libstdc++'s own demangler (cxxfilt), Rust by rust_demangler, without the hash at the end.
    Names of more than 4,096 characters stay mangled, and those that take too long or expand to
    more than 64 KiB; libstdc++ refuses those of more than 1,024. One thread at a time may call it.
    """
    if not name.startswith(("_Z", "_R")) or len(name) > _MAX_NAME_CHARS or not name.isprintable():
        return name
    return DEMANGLER.ask(_OPTIMISER.sub("", name)) or name


class Demangler:
    """The child process that demangles: started when needed, and again after a name ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def ask(self, name: str) -> str:
        """Return the demangled name, "" if it cannot be demangled."""
        try:
            process = self._process or self._start()
            if process is None or process.stdin is None or process.stdout is None:
                return ""
            process.stdin.write(name.encode() + b"\n")
            answer = _answer(process.stdout)
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            self.end()
        return answer.rstrip(b"\n").decode("utf-8", "replace")

    def end(self) -> None:
        """Kill the child process, if there is one."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes] | None:
        if self._starts >= MAX_STARTS:
            return None
        self._starts += 1
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, os.pathsep.join(sys.path)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends a recording; then its names are needed
        )
        return self._process


DEMANGLER: Final = Demangler()
"""The one that demangled() asks."""
atexit.register(DEMANGLER.end)


def _answer(stream: IO[bytes]) -> bytes:
    """Return one line; less of it, or none, if the child ends, is too slow or writes too much."""
    answer = b""
    events = select.poll()  # select() takes no file descriptor above 1,023
    events.register(stream, select.POLLIN)
    while not answer.endswith(b"\n") and len(answer) <= _MAX_ANSWER_BYTES:
        ready = events.poll(_MAX_WAIT_MS)
        data = os.read(stream.fileno(), _MAX_ANSWER_BYTES) if ready else b""
        if not data:
            return b""
        answer += data
    return answer


def _serve(names: IO[bytes], answers: IO[bytes]) -> None:
    """Demangle one name per line, in the child process."""
    import cxxfilt
    import rust_demangler

    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - rust_demangler prints names that it cannot read
    _drop_all_rights()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the parent may ignore it
    for line in names:
        name = line.rstrip(b"\n").decode()
        # The signal ends the process, even inside C code that never returns.
        signal.setitimer(signal.ITIMER_PROF, _MAX_CPU_S)
        try:
            if _RUST.match(name):
                readable = _RUST_HASH.sub("", rust_demangler.demangle(name))
                readable = _COUNTED.sub(r"{\1#\2}", readable)  # as rustc's own demangler writes it
            else:
                readable = cxxfilt.demangle(name)
        except Exception:  # of a hostile name, a library may raise any
            readable = ""
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer = readable.encode("utf-8", "replace").replace(b"\n", b"")
        answers.write((answer if len(answer) < _MAX_ANSWER_BYTES else b"") + b"\n")
        answers.flush()


def _drop_all_rights() -> None:
    """Drop all capabilities, and forbid opening files: reading hostile names needs neither."""
    libc = ctypes.CDLL(None, use_errno=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    header, nothing = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.capset(header, nothing):
        raise OSError(ctypes.get_errno(), "could not drop capabilities")


if __name__ == "__main__":
    sys.path[:] = sys.argv[1].split(os.pathsep)
    _serve(sys.stdin.buffer, sys.stdout.buffer)
