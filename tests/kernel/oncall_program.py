"""The target `oncall`: goroutines that wait for files, locks and calls, and the facts of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ebpfprof.errors import ExitCode
from tests.kernel.programs import NEWEST, program
from tests.kernel.verbs import verb
from tests.targets_run import Target

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class OnCall:
    """The running target, and the facts of its goroutines by the function that waits."""

    target: Target
    facts: dict[str, Facts]

    def ask(self, command: str) -> dict[str, Facts]:
        """Give a command that is answered by facts."""
        found: dict[str, Facts] = json.loads(self.target.ask(command, "{"))
        return found

    def dump(self, *arguments: str, pid: int = 0) -> dict[int, Facts]:
        """What `ebpfprof dump --json` says of all goroutines, by their ids."""
        output = verb("dump", "--json", "--pid", str(pid or self.target.pid), *arguments)
        assert output.code == ExitCode.OK, output.stderr
        return {load["id"]: load for load in json.loads(output.stdout)["goroutines"]}

    def text(self, *arguments: str) -> str:
        """What `ebpfprof dump` prints."""
        output = verb("dump", "--pid", str(self.target.pid), *arguments)
        assert output.code == ExitCode.OK, output.stderr
        return output.stdout


@contextmanager
def oncall(minor: str = NEWEST, mode: str = "plain") -> Iterator[OnCall]:
    with Target.start(program("oncall", minor, mode)) as target:
        yield OnCall(target, json.loads(target.output[0]))
        target.kill()
