"""The first change of the documentation works as it is written there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.agent.sinks import backends

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/first-change.md").read_text()
MODULES = ("ebpfprof/discovery/usage.py", "ebpfprof/commands/list.py")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_the_new_sink_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, test = blocks("python")
    module: dict[str, Any] = {"__name__": "webhook"}
    exec(backend, module)
    monkeypatch.setitem(backends.BACKENDS, "webhook", module["WebhookBackend"])
    exec(test, module)
    module["test_each_profile_is_posted_as_a_pprof_file"]()


@pytest.mark.parametrize(("number", "path"), list(enumerate(MODULES)))
def test_the_new_column_changes_lines_that_are_there(number: int, path: str) -> None:
    source = (ROOT / path).read_text().splitlines()
    lines = [line for line in blocks("diff")[number].splitlines() if line != "..."]
    unchanged = [line[1:] for line in lines if not line.startswith("+")]
    assert [line for line in unchanged if line not in source] == []
    assert any(line.startswith("+") for line in lines)
