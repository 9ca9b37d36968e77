"""A pytest plugin that reports tests and built programs as they end, a line of JSON each.

    python -m pytest -p vagrant.reporter --report-to FILE ...

A test gives {"test", "outcome", "seconds"}, with "why" unless it passed. A program that a test
took from the build cache, or built, gives {"built": PATH}.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from tests.toolchains import Toolchain

_WHY_CHARACTERS = 3000


class Reporter:
    """Writes the lines: of a test one, after its teardown."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._phases: list[pytest.TestReport] = []
        self._build = Toolchain.build

    def pytest_sessionstart(self) -> None:
        """Wrap Toolchain.build, to report the programs."""
        build = self._build
        reported: set[Path] = set()

        @wraps(build)
        def built(*args: Any, **options: Any) -> Path:  # noqa: ANN401 - passed on as they are
            path = build(*args, **options)
            if path not in reported:
                reported.add(path)
                self._say({"built": str(path)})
            return path

        Toolchain.build = built  # type: ignore[method-assign]  # to see what tests build

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Report one test, after all its phases."""
        self._phases.clear()
        result = yield
        if self._phases:
            self._say(summary(self._phases))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of one phase."""
        self._phases.append(report)

    def pytest_sessionfinish(self) -> None:
        """Restore Toolchain.build, and close the file."""
        Toolchain.build = self._build  # type: ignore[method-assign]  # to see what tests build
        self._file.close()

    def _say(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")


def summary(phases: list[pytest.TestReport]) -> dict[str, object]:
    """The line of a test: passed only if all its phases passed."""
    worst = next((phase for phase in phases if phase.outcome != "passed"), phases[-1])
    line: dict[str, object] = {
        "test": worst.nodeid,
        "outcome": worst.outcome,
        "seconds": round(sum(phase.duration for phase in phases), 2),
    }
    if worst.outcome != "passed":
        line["why"] = worst.longreprtext[-_WHY_CHARACTERS:]
    return line


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's option."""
    parser.addoption("--report-to", type=Path, help="write lines of JSON to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin if there is a file to write to."""
    path = config.getoption("--report-to")
    if path is not None:
        config.pluginmanager.register(Reporter(path), "vagrant-reporter")
