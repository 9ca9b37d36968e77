"""Gives parsers a great many inputs, each bounded in time and memory, and keeps those that fail.

Input number n of a parser is a function of its name, the seed of the run and n alone: a failure
can be reproduced. Time is processor time, so that a busy machine causes no failures.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import re
import resource
import select
import signal
import struct
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from symbolizer import SymbolizerError
from tests.fuzz.mutate import minimised, mutated

CORPUS: Final = Path(__file__).parent / "corpus"
ROOT: Final = Path(__file__).parents[2]
STUCK_S: Final = 120.0
"""After so long for one input, even in C code, the process is killed."""
_MAX_FAILURES: Final = 20
_COMPRESSED: Final = ".z"


@dataclass(frozen=True)
class Parser:
    """One way into the profiler for bytes that a target or a stranger wrote.

    `ask` gives the bytes to the parser and checks that the answer makes sense. `covers` are the
    modules that its seeds pass. `frozen` returns how many bytes of a seed no change touches.
    """

    name: str
    covers: tuple[str, ...]
    ask: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    allowed: tuple[type[Exception], ...] = (SymbolizerError,)
    cpu_s: float = 10.0
    memory_bytes: int = 512 << 20
    share: int = 150
    """Number of inputs in CI."""
    frozen: Callable[[bytes], int] = field(default=lambda _: 0)

    def input(self, run: int, number: int) -> bytes:
        """Input `number` of this run."""
        rng = random.Random(f"{self.name} {run} {number}")
        return mutated(rng, self.seeds(), self.frozen)


class TooLong(BaseException):
    """The input has used up its processor time. No parser may catch it."""


@contextmanager
def bounded(cpu_s: float, memory_bytes: int) -> Iterator[Callable[[], None]]:
    """Bound the code inside; it can call the yielded function to start its time again."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise TooLong(f"more than {cpu_s:g} s of processor time")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old_memory = resource.getrlimit(resource.RLIMIT_AS)
    old_handler = signal.signal(signal.SIGPROF, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes, old_memory[1]))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield lambda: signal.setitimer(signal.ITIMER_PROF, cpu_s) and None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old_handler)
        resource.setrlimit(resource.RLIMIT_AS, old_memory)


def fault(parser: Parser, data: bytes) -> str:
    """What is wrong with the parser's answer, and the failing lines; "" without a failure."""
    try:
        parser.ask(data)
    except parser.allowed:
        return ""
    except TooLong as error:  # its lines are chance
        return f"{TooLong.__name__}: {error}"
    except Exception as error:  # any error is a failure of the parser
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(str(ROOT))]
        where = "".join(f" {Path(each.filename).name}:{each.lineno}" for each in ours[-2:])
        return f"{type(error).__name__}{where}: {str(error)[:200]}"
    return ""


@dataclass
class Result:
    """The outcome of the inputs of one parser."""

    parser: str
    inputs: int = 0
    cpu_s: float = 0.0
    slowest_ms: float = 0.0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        """Add the outcome of another run."""
        self.inputs += other.inputs
        self.cpu_s += other.cpu_s
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.failures += other.failures


def ask_many(
    parser: Parser,
    numbers: Iterator[int],
    run: int,
    until: float,
    progress: Callable[[int], None] = lambda _: None,
    *,
    keeps: bool = True,
) -> Result:
    """Give the inputs of these numbers to the parser, `until` a time (of time.monotonic).

    If it `keeps`, inputs that fail go into the corpus.
    """
    result = Result(parser.name)
    signatures: set[str] = set()
    parser.seeds()
    began_s = time.process_time()
    with bounded(parser.cpu_s, parser.memory_bytes) as renew:
        last_s = began_s
        for number in numbers:
            progress(number)
            data = parser.input(run, number)
            renew()
            found = fault(parser, data)
            renew()  # the time limit is for the parser only
            result.inputs += 1
            now_s = time.process_time()
            result.slowest_ms = max(result.slowest_ms, 1000 * (now_s - last_s))
            last_s = now_s
            signature = found.partition(": ")[0]
            if found and signature not in signatures:
                signatures.add(signature)
                name = kept(parser, data, found, renew).name if keeps else f"input {number}"
                result.failures.append(f"{found} ({name})")
                last_s = time.process_time()
            if len(signatures) >= _MAX_FAILURES or time.monotonic() > until:
                break
    result.cpu_s = time.process_time() - began_s
    return result


def kept(parser: Parser, data: bytes, found: str, renew: Callable[[], None]) -> Path:
    """Put a minimised input that failed into the corpus; return the file."""
    kind = re.split("[ :]", found)[0]

    def fails(shorter: bytes) -> bool:
        renew()
        return re.split("[ :]", fault(parser, shorter))[0] == kind

    return keep(parser, data if kind == TooLong.__name__ else minimised(data, fails))


def keep(parser: Parser, data: bytes) -> Path:
    """Put an input into the corpus."""
    folder = CORPUS / parser.name
    folder.mkdir(parents=True, exist_ok=True)
    packed = zlib.compress(data, 9)
    name = hashlib.sha256(data).hexdigest()[:16]
    path = folder / (name + _COMPRESSED if len(packed) < len(data) // 2 else name)
    path.write_bytes(packed if path.suffix == _COMPRESSED else data)
    return path


def corpus(parser: Parser) -> Iterator[tuple[str, bytes]]:
    """The kept inputs, with the names of their files."""
    folder = CORPUS / parser.name
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        data = path.read_bytes()
        yield path.name, zlib.decompress(data) if path.suffix == _COMPRESSED else data


def run_apart(parser: Parser, run: int, inputs: int, seconds: float, first: int = 0) -> Result:
    """Run ask_many in a process of its own: a crash or a hang is a failure of the input."""
    parser.seeds()
    result = Result(parser.name)
    until = time.monotonic() + seconds
    last = first + inputs
    while first < last and time.monotonic() < until and len(result.failures) < _MAX_FAILURES:
        place = mmap.mmap(-1, 8)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(parser, run, range(first, last), until, place, writer)
        os.close(writer)
        output = _message(reader, pid, place)
        _, status = os.waitpid(pid, 0)
        if status == 0:
            result.add(Result(**json.loads(output)))
            break
        (number,) = struct.unpack_from("<q", place)
        path = keep(parser, parser.input(run, number))
        result.add(Result(parser.name, number - first + 1))
        result.failures.append(f"killed by {os.waitstatus_to_exitcode(status)} ({path.name})")
        first = number + 1
    return result


def _child(
    parser: Parser, run: int, numbers: range, until: float, place: mmap.mmap, writer: int
) -> None:
    try:
        result = ask_many(
            parser, iter(numbers), run, until, lambda n: struct.pack_into("<q", place, 0, n)
        )
        os.write(writer, json.dumps(asdict(result)).encode())
        os._exit(0)
    except BaseException:  # a child never returns
        traceback.print_exc()
    finally:
        os._exit(1)


def _message(reader: int, pid: int, place: mmap.mmap) -> bytes:
    """All that the process writes until it ends; if it makes no progress, kill it."""
    output, before = b"", b""
    while True:
        if select.select([reader], [], [], STUCK_S)[0]:
            data = os.read(reader, 1 << 16)
            if not data:
                os.close(reader)
                return output
            output += data
        elif place[:] == before:
            os.kill(pid, signal.SIGKILL)
        before = place[:]
