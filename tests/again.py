"""Runs pytest: many tests side by side, then those marked `alone`, then failed tests once more.

Side by side run one more than there are processors, four at most. `alone` are those that measure
the machine, or change it for all tests: they would disturb others, or others them.

Tests on a live machine depend on its load: one of thousands fails while a hypervisor runs other
guests. A run may have a few such tests, and names each at its end, with its output: it is a bug of
the test, or of the program, that has not been found yet. A test that fails twice is broken, and so
is a test that fails once if it checks that a target goes on unharmed.

All of it runs with a folder for temporary files of its own, in which nothing may be left.

    python -m tests.again [ARGUMENT...]     arguments and exit status are pytest's
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

MOST_UNSTEADY: Final = 8
MOST_LANES: Final = 4
OF_HARM: Final = (
    "tests/kernel/test_faults",
    "tests/kernel/test_kill",
    "tests/kernel/test_leaks",
    "tests/kernel/test_soak",
    "tests/differential/test_races",
)
# pytest.ExitCode
_PASSED: Final = 0
_SOME_FAILED: Final = 1
_NO_TESTS: Final = 5
_CACHE: Final = Path(".pytest_cache")
_LAST_FAILED: Final = _CACHE / "v/cache/lastfailed"
_RESULTS: Final = (_CACHE / "beside.xml", _CACHE / "alone.xml")
_SHOWN: Final = 600  # characters of what each said


def run(arguments: Sequence[str]) -> int:
    """Run pytest in the working directory, perhaps again; returns its exit status.

    That is 1 where all passed but left temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="ebpfprof-tests-") as name:
        folder = Path(name)
        folder.chmod(0o1777)  # as /tmp: tests run programs of other users
        # Only what pytest keeps of its last runs stays, where it always is.
        places = {"PYTEST_DEBUG_TEMPROOT": tempfile.gettempdir(), "TMPDIR": name}
        os.environ.update(places)
        code = _until_steady(arguments)
        left = sorted(path.name for path in folder.iterdir())
        if not left:
            return code
        print("\nLeft where temporary files are:", *left, sep="\n  ", flush=True)
        return code or _SOME_FAILED


def _until_steady(arguments: Sequence[str]) -> int:
    """Run them, and what failed once more; returns pytest's exit status."""
    code = _all_tests(arguments)
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


def _all_tests(arguments: Sequence[str]) -> int:
    """Each test once; returns the exit status of what went worse, side by side or alone."""
    # One more than processors: a test waits for others part of the time.
    lanes = min(len(os.sched_getaffinity(0)) + 1, MOST_LANES)
    side_by_side = (f"--numprocesses={lanes}", "--dist=worksteal")
    beside, alone = (f"--junitxml={path}" for path in _RESULTS)
    codes = {_pytest("--cache-clear", "-m", "not alone", beside, *side_by_side, *arguments)}
    # Not after an interrupt.
    if codes <= {_PASSED, _SOME_FAILED, _NO_TESTS}:
        codes.add(_pytest("-m", "alone", alone, *arguments))
    return max(codes - {_NO_TESTS}, default=_NO_TESTS)


def _show_reasons() -> None:
    """Print what each failure of the first run said, in brief: whole, they may be cut away."""
    for results in filter(Path.exists, _RESULTS):
        for case in ElementTree.parse(results).iter("testcase"):
            for failure in (*case.iterfind("failure"), *case.iterfind("error")):
                name = f"{case.get('classname')}::{case.get('name')}"
                print(f"\n{name}: {failure.get('message', '')[:_SHOWN]}", flush=True)


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
