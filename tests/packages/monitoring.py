"""The names of metrics that the dashboard and the alerts ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.tools.rooms import ROOT

FOLDER: Final = ROOT / "packaging" / "monitoring"
_NAME: Final = re.compile(r"(?<![:\w])ebpfprof_[a-z0-9_]+")


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def rules() -> list[dict[str, Any]]:
    """Alerts and recording rules."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[str]:
    """All queries of both."""
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (each["definition"] for each in dashboard()["templating"]["list"][1:])
    yield from (rule["expr"] for rule in rules())


def asked() -> set[str]:
    """The names of all metrics of ours in them."""
    return {name for expression in expressions() for name in _NAME.findall(expression)}
