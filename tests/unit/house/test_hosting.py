"""The definitions for a public host: readable, pinned, and with few rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_the_workflows_that_contributing_names() -> None:
    assert {path.stem for path in WORKFLOWS} == {"fast", "full", "kernel", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_named_by_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_may_read_only_and_keep_no_credentials(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    writing = [name for name, job in workflow["jobs"].items() if "permissions" in job]
    assert writing == (["draft"] if path.stem == "release" else [])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_job_runs_without_end(path: Path) -> None:
    assert all(job["timeout-minutes"] <= 350 for job in read(path)["jobs"].values())


def test_scripts_that_workflows_run_exist() -> None:
    named = re.findall(r"\b((?:tests|packaging)/[\w./]+)", "".join(map(Path.read_text, WORKFLOWS)))
    assert len(named) > 5
    assert [
        file for file in named if not file.endswith("requirements/") and not list(ROOT.glob(file))
    ] == []


def test_issue_forms_ask_for_what_bugs_need() -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml")
    assert "doctor" in {part.get("id") for part in form["body"]}


def test_hooks_run_the_tools_of_the_environment() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert {hook["id"] for hook in local["hooks"]} >= {"ruff-check", "ruff-format", "mypy"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in local["hooks"])
