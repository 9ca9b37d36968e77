"""What holds for each test, and the list of unsteady ones."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ebpfprof.privileges.capabilities import effective

# How long an example takes says how busy the machine is, and nothing of the program.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-rerunfailures' workers send their messages at once.

    After each test a worker writes how often it ran, and asks for the total. Without TCP_NODELAY
    the kernel holds the question back until the first message is acknowledged: 40 ms.
    """
    if hasattr(config, "workerinput") and hasattr(config, "failures_db"):
        config.failures_db.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the tests that passed in a second run to the file that tests/pytest.sh shows."""
    file = os.environ.get("EBPFPROF_UNSTEADY")
    if file and "PYTEST_XDIST_WORKER" not in os.environ:
        stats = terminalreporter.stats
        passed = {report.nodeid for report in stats.get("passed", ())}
        names = {report.nodeid for report in stats.get("rerun", ())} & passed
        with Path(file).open("a") as output:
            output.writelines(f"  {name}\n" for name in sorted(names))


FAST = ("unit", "images", "recorded", "fuzz")
"""The folders of the fast tests."""
NOT_FAST = ("machine", "full")
"""Markers of tests in these folders that are not fast: see pyproject.toml."""


_MACHINE_MODULE = "\npytestmark = pytest.mark.machine\n"
_ALONE = "pytest.mark.alone"


def _folder(path: Path) -> str:
    """The folder of tests/ that a path is in, "" for what is in none."""
    tests = Path(__file__).parent
    parts = path.relative_to(tests).parts if path.is_relative_to(tests) else ()
    return parts[0] if parts else ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out other modules where only fast tests run, or only those marked `alone`.

    To import the others may need Go; or takes seconds, for a few dozen modules.
    """
    chosen = config.getoption("markexpr")
    is_module = collection_path.suffix == ".py"
    if chosen == "fast":
        if _folder(collection_path) not in ("", *FAST):
            return True
        return True if is_module and _MACHINE_MODULE in collection_path.read_text() else None
    if chosen in ("alone", "not full and alone") and is_module:
        return None if _ALONE in collection_path.read_text() else True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would visit thousands of tests again and again.

    Afterwards they are no longer its concern: they live as long as the run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests."""
    for item in items:
        marked = any(item.get_closest_marker(name) for name in NOT_FAST)
        if _folder(item.path) in FAST and not marked:
            item.add_marker("fast")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A name for a parameter; None leaves it to pytest.

    Bytes may have been made just now, with the time in them, as by gzip: workers that run tests
    side by side would not have the same names for them.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def rights_of_the_tests() -> Iterator[None]:
    """Rights that a verb gives up are gone for good, and for all tests that come later."""
    before = effective()
    yield
    assert effective() == before, "run the verb in a process of its own"
