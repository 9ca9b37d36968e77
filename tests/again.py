"""Runs pytest, and of the tests that fail, if they are few, each once more by itself.

Tests on a live machine see what others do on it: a hypervisor that takes a processor away fails
one of thousands. A run may have so many of those and no more, and names each at its end: it is a
bug of the test, or of the program, that has not been found yet. What fails twice is broken.

    python -m tests.again [ARGUMENT...]     arguments and exit status are pytest's
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOST_UNSTEADY: Final = 3
_SOME_FAILED: Final = 1  # pytest.ExitCode.TESTS_FAILED
_LAST_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")


def run(arguments: Sequence[str]) -> int:
    """Run pytest in the working directory, perhaps again; returns its exit status."""
    code = _pytest("--cache-clear", *arguments)
    if code != _SOME_FAILED:
        return code
    failed = list(json.loads(_LAST_FAILED.read_text()))
    if len(failed) > MOST_UNSTEADY:
        print(f"\n{len(failed)} tests failed, too many to call them unsteady.", flush=True)
        return code
    for test in failed:
        if _pytest(test):
            return code
    print(
        "\nUnsteady: failed, and passed when run again by itself:", *failed, sep="\n  ", flush=True
    )
    return 0


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
