"""Runs pytest, and of the tests that fail, if they are few, each once more by itself.

Tests on a live machine see what others do on it: a hypervisor that takes a processor away fails
one of thousands. A run may have so many of those and no more, and names each at its end, with what
it said: it is a bug of the test, or of the program, that has not been found yet. What fails twice
is broken, and so is what fails once of the tests that a target goes on unharmed.

    python -m tests.again [ARGUMENT...]     arguments and exit status are pytest's
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

MOST_UNSTEADY: Final = 8
OF_HARM: Final = (
    "tests/kernel/test_faults",
    "tests/kernel/test_kill",
    "tests/kernel/test_leaks",
    "tests/kernel/test_soak",
    "tests/differential/test_races",
)
_SOME_FAILED: Final = 1  # pytest.ExitCode.TESTS_FAILED
_CACHE: Final = Path(".pytest_cache")
_LAST_FAILED: Final = _CACHE / "v/cache/lastfailed"
_RESULTS: Final = _CACHE / "results.xml"
_SHOWN: Final = 600  # characters of what each said


def run(arguments: Sequence[str]) -> int:
    """Run pytest in the working directory, perhaps again; returns its exit status."""
    code = _pytest("--cache-clear", f"--junitxml={_RESULTS}", *arguments)
    if code != _SOME_FAILED:
        return code
    failed = list(json.loads(_LAST_FAILED.read_text()))
    _show_reasons()
    if harmed := [test for test in failed if test.startswith(OF_HARM)]:
        print("\nThat a target goes on unharmed is never by chance:", *harmed, sep="\n  ")
        return code
    if len(failed) > MOST_UNSTEADY:
        print(f"\n{len(failed)} tests failed, too many to call them unsteady.", flush=True)
        return code
    for test in failed:
        if _pytest(test):
            return code
    _show_reasons()
    print(
        "\nUnsteady: failed, and passed when run again by itself:", *failed, sep="\n  ", flush=True
    )
    return 0


def _show_reasons() -> None:
    """Print what each failure of the first run said, in brief: whole, they may be cut away."""
    for case in ElementTree.parse(_RESULTS).iter("testcase"):
        for failure in (*case.iterfind("failure"), *case.iterfind("error")):
            name = f"{case.get('classname')}::{case.get('name')}"
            print(f"\n{name}: {failure.get('message', '')[:_SHOWN]}", flush=True)


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
