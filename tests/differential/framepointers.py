"""CPU profiles by perf and by bpftrace, which walk frame pointers, for comparison."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.targets_run import SLOWNESS

DEADLINE_S: Final = 60 * SLOWNESS
BPFTRACE_HZ: Final = 999

# Functions, innermost first, and how many samples; filled in when the recording is over.
Stacks = list[tuple[list[str], int]]


@contextmanager
def perf_recording(pid: int, folder: Path, hz: int, *, kernel: bool = False) -> Iterator[Stacks]:
    """`perf record -g` on a process while the block runs."""
    stacks: Stacks = []
    data = folder / "perf.data"
    orders, ordering = os.pipe()
    answers, answering = os.pipe()
    command = ["perf", "record", "-q", "-D", "-1", f"--control=fd:{orders},{answering}"]
    command += [
        "-e",
        "cpu-clock" if kernel else "cpu-clock:u",
        "-F",
        str(hz),
        "-g",
        "-p",
        str(pid),
        "-o",
        str(data),
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(orders, answering),
        text=True,
    )
    try:
        os.close(orders)
        os.close(answering)
        os.write(ordering, b"enable\n")
        if not os.read(answers, 16).startswith(b"ack"):
            raise RuntimeError(f"perf did not start: {process.communicate()[1]}")
        yield stacks
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        if not data.exists():
            raise RuntimeError(f"perf wrote nothing: {errors}")
    finally:
        process.kill()
        process.communicate()
        os.close(ordering)
        os.close(answers)
    script = ["perf", "script", "-F", "ip,sym", "-i", str(data)]
    stacks += _of_perf(subprocess.run(script, capture_output=True, text=True, check=True).stdout)


def _of_perf(text: str) -> Stacks:
    """Stacks are paragraphs; each line is an address and a symbol."""
    paragraphs = [paragraph.split("\n") for paragraph in text.split("\n\n")]
    stacks = [
        [line.split(maxsplit=1)[-1] for line in lines if line.strip()] for lines in paragraphs
    ]
    return [(stack, 1) for stack in stacks if stack]


@contextmanager
def bpftrace_recording(pid: int) -> Iterator[Stacks]:
    """bpftrace with ustack on a process while the block runs; it must live on until then.

    SIGINT would be lost if it came while bpftrace (up to 0.17 at least) is not asleep, such as one
    that waits for a processor. So the script itself ends it, as soon as another process runs.
    """
    stacks: Stacks = []
    with _stopped() as ending:
        script = (
            'BEGIN { printf("attached\\n"); } '
            f"profile:hz:{BPFTRACE_HZ} /pid == {pid}/ {{ @[ustack] = count(); }} "
            f"profile:hz:{BPFTRACE_HZ} /pid == {ending.pid}/ {{ exit(); }}"
        )
        process = subprocess.Popen(
            ["bpftrace", "-B", "line", "-p", str(pid), "-e", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_symbol_cache()},
            text=True,
        )
        try:
            assert process.stdout is not None
            # What BEGIN prints is read when all probes are in place.
            if "attached\n" not in iter(process.stdout.readline, ""):
                raise RuntimeError(f"bpftrace did not attach: {process.communicate()[1]}")
            yield stacks
            ending.send_signal(signal.SIGCONT)
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.communicate()
    stacks += _of_bpftrace(output)


@contextmanager
def _stopped() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is stopped; continued, it keeps a processor busy."""
    process = subprocess.Popen(["sh", "-c", "kill -STOP $$; while :; do :; done"])
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        yield process
    finally:
        process.kill()
        process.wait()


def _symbol_cache() -> dict[str, str]:
    """What lets bpftrace read the target's symbols once, as newer versions do by themselves.

    Up to 0.17 it reads them for each frame, unless addresses are the same in each process: half a
    minute for 500 stacks on a quiet machine, and more than the deadline on a busy one.
    """
    output = subprocess.run(["bpftrace", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v0\.(\d+)", output.stdout)
    assert found, output.stdout
    return {"BPFTRACE_CACHE_USER_SYMBOLS": "1"} if int(found[1]) <= 17 else {}


def _of_bpftrace(text: str) -> Stacks:
    """Stacks stand in brackets, a line for each function with an offset; the count comes last."""
    return [
        ([line.strip().rsplit("+", 1)[0] for line in lines.strip().splitlines()], int(count))
        for lines, count in re.findall(r"^@\[(.*?)\]: (\d+)$", text, re.MULTILINE | re.DOTALL)
    ]
