"""Go's own viewer shows what `ebpfprof trace` wrote: `go tool trace`, in a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from ebpfprof.errors import ExitCode
from tests.builds import versions
from tests.kernel.test_trace_command import annotating, trace, working
from tests.targets_run import DEADLINE_S
from tests.toolchains import toolchain

LISTENS = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    path = folder / "locks.trace"
    with working("locks", folder) as target:
        output = trace(str(target.pid), "-d", "0.5", "--max-overhead", "0", "-o", str(path))
    assert output.code == ExitCode.OK, output.stderr
    return path


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "annotated.trace"
    with annotating() as target:
        output = trace(str(target.pid), "-d", "0.5", "--max-overhead", "0", "-o", str(path))
    assert output.code == ExitCode.OK, output.stderr
    return path


@contextmanager
def viewer(minor: str, path: Path) -> Iterator[str]:
    """The address of Go's viewer of a trace. `go tool` starts it, so it ends by group."""
    go = toolchain(minor)
    tool = subprocess.Popen(
        [go.goroot / "bin" / "go", "tool", "trace", "-http=127.0.0.1:0", path],
        # From Go 1.25 on the command builds the tool, in a folder that stays when it is killed.
        env=go.environment() | {"BROWSER": "true", "TMPDIR": str(path.parent)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert tool.stderr
        output = ""
        for line in tool.stderr:
            output += line
            if found := LISTENS.search(line):
                yield found[1]
                return
        raise AssertionError(output)
    finally:
        os.killpg(tool.pid, signal.SIGKILL)
        tool.communicate()


@pytest.mark.full
@pytest.mark.parametrize("minor", versions("1.23", "1.25", "1.27"))
def test_gos_viewer_shows_goroutines(minor: str, recorded: Path, browser: Chrome) -> None:
    def until_there(text: str) -> None:
        WebDriverWait(browser, DEADLINE_S).until(
            lambda _: text in browser.find_element(By.TAG_NAME, "body").text
        )

    with viewer(minor, recorded) as url:
        browser.get(f"{url}/goroutines")
        until_there("main.locks.func1")
        browser.get(f"{url}/trace")
        # Of catapult's viewer: one row for each P, and the spans of goroutines in it.
        WebDriverWait(browser, DEADLINE_S).until(
            lambda _: browser.execute_script(
                "const viewer = document.querySelector('tr-ui-timeline-view');"
                "return viewer && viewer.model && viewer.model.getAllThreads().length > 1"
            )
        )
        names = browser.execute_script(
            "const viewer = document.querySelector('tr-ui-timeline-view');"
            "return viewer.model.getAllThreads().flatMap("
            "(thread) => thread.sliceGroup.slices.map((slice) => slice.title))"
        )
        assert sum(name.endswith("main.locks.func1") for name in names) > 10
        errors = [
            each["message"]
            for each in browser.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has no types
            if each["level"] == "SEVERE" and "/favicon.ico" not in each["message"]
        ]
        assert errors == []


@pytest.mark.full
@pytest.mark.parametrize("minor", versions("1.23", "1.25", "1.27"))
def test_gos_viewer_shows_tasks_and_regions(minor: str, annotated: Path) -> None:
    with viewer(minor, annotated) as url:
        tasks, regions, dishes = (
            urlopen(f"{url}/{page}").read().decode()
            for page in ("usertasks", "userregions", "usertask?type=dish")
        )
    assert set(re.findall(r"usertask\?type=(\w+)", tasks)) == {"dish", "order"}
    assert all(name in regions for name in ("take", "serve", "wait", "cook"))
    assert "brûlée" in dishes
