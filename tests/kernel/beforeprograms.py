"""Run `ebpfprof` until it would open the first program of a process: there it is stopped.

    python tests/kernel/beforeprograms.py ARGUMENT...

Both are stopped by SIGSTOP, the child of its that would open the program, and then itself.

It imports no more than `ebpfprof` itself does: a library that starts threads would falsify which
threads there are at that moment.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from ebpfprof.__main__ import main

COMMAND = (sys.executable, str(Path(__file__).resolve()))
_open = os.open
_MAIN_PID = os.getpid()


def _opening(path: Any, *args: Any, **kwargs: Any) -> int:  # noqa: ANN401 - as os.open has it
    if re.fullmatch(r"/proc/[0-9]+/exe", str(path)):
        os.kill(_MAIN_PID, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
    return _open(path, *args, **kwargs)


if __name__ == "__main__":
    os.open = _opening
    main()
