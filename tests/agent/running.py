"""A running `ebpfprof agent`, and what it wrote."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

from ebpfprof.agent.sinks.folder import INDEX
from tests.server.serving import Answer, ask
from tests.targets_run import DEADLINE_S

COMMAND = (sys.executable, "-m", "ebpfprof", "agent")


def settings(folder: Path, *rules: str, **more: object) -> str:
    """A file for targets with AGENT_TEST=FOLDER in their environment; `rules` are lines of TOML.

    Windows of a second go into a folder; the node has no bound. No process is explained.
    """
    values = {
        "window": "1s",
        "min_age": "0s",
        "max_node_overhead": 100,
        "max_overhead": 0,
        "listen": "127.0.0.1:0",
        "environment": ["AGENT_TEST"],
        "explain": 0,
        **more,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(
        [
            *lines,
            "[ring]",
            "enabled = false",
            "[[sinks]]",
            'type = "folder"',
            f"path = {json.dumps(str(folder / 'out'))}",
            "[[rules]]",
            'action = "keep"',
            'source = "__meta_environment_AGENT_TEST"',
            f"regex = {json.dumps(str(folder))}",
            *rules,
        ]
    )


@dataclass(frozen=True)
class Written:
    """A line of the sink's index: a window, a time that was not watched, or findings."""

    line: dict[str, Any]

    @property
    def service(self) -> str:
        return str(self.line["identity"]["service"])

    @property
    def pid(self) -> int:
        return int(self.line["pid"])

    @property
    def times(self) -> tuple[float, float]:
        return self.line["start_s"], self.line["end_s"]

    @property
    def profiles(self) -> dict[str, str]:
        return dict(self.line.get("profiles", {}))

    @property
    def reason(self) -> str:
        return str(self.line.get("reason", ""))


class RunningAgent:
    """A context manager: no process outlives the block."""

    def __init__(
        self,
        folder: Path,
        text: str,
        env: dict[str, str] | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._folder = folder
        self.config = folder / "agent.toml"
        self.config.write_text(text)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [*command, "--config", str(self.config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env={**os.environ, "RUNTIME_DIRECTORY": str(folder / "run"), **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode()

    def await_said(self, text: str, times: int = 1) -> None:
        """Wait until it has said this that many times; fails if it ends before."""
        self.wait_until(lambda: self.said.count(text) >= times, f"it never said {text!r}")

    def written(self) -> list[Written]:
        path = self._folder / "out" / INDEX
        text = path.read_text() if path.exists() else ""
        return [Written(json.loads(line)) for line in text.splitlines()]

    def windows(self, service: str = "") -> list[Written]:
        """The windows so far, of all services or of one."""
        found = [each for each in self.written() if "profiles" in each.line]
        return [each for each in found if not service or each.service == service]

    def findings(self) -> list[Written]:
        """What was found wrong with processes so far."""
        return [each for each in self.written() if "findings" in each.line]

    def await_windows(self, count: int, service: str = "") -> list[Written]:
        """Wait for that many windows."""
        self.wait_until(
            lambda: len(self.windows(service)) >= count, f"never {count} windows of {service!r}"
        )
        return self.windows(service)

    def wait_until(self, is_so: Callable[[], bool], problem: str) -> None:
        until = monotonic() + DEADLINE_S
        while not is_so():
            assert self._process.poll() is None, f"it ended: {self._process.returncode} {self.said}"
            assert monotonic() < until, f"{problem}: {self.said}"
            sleep(0.02)

    def reload(self, text: str) -> None:
        """Change its file, and have it read that again."""
        self.config.write_text(text)
        self._process.send_signal(signal.SIGHUP)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def finish(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait(DEADLINE_S)

    def end(self) -> int:
        """End it as systemd does."""
        self.send(signal.SIGTERM)
        return self.finish()

    def get(self, path: str) -> Answer:
        """What it answers over HTTP."""
        self.await_said("/metrics")
        match = re.search(r"http://(\S+)/metrics", self.said)
        assert match, self.said
        return ask(match[1], path)

    def metric(self, name: str, **labels: str) -> float:
        """A metric's value; fails if there is none."""
        inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
        wanted = f"{name}{{{inner}}}" if inner else name
        text = self.get("/metrics").body.decode()
        lines = (line.rpartition(" ") for line in text.splitlines())
        found = {key: value for key, _, value in lines}
        assert wanted in found, text
        return float(found[wanted])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._stderr.close()
