"""A running Collector of OpenTelemetry, and what it says that it received.

with Collector(folder) as collector:
    push(collector.url)
    collector.profiles(2)
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.backends.building import COLLECTOR, built
from tests.backends.ports import free_port
from tests.backends.running import RunningServer
from tests.targets_run import DEADLINE_S

CONFIG = """\
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
exporters:
  file:
    path: {path}
    flush_interval: 20ms
  file/logs:
    path: {logs}
    flush_interval: 20ms
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [file]
    logs:
      receivers: [otlp]
      exporters: [file/logs]
"""
Stack = tuple[tuple[int, tuple[tuple[str, str, int, int], ...]], ...]
"""Locations, leaf first: an address and its frames (function, file, line, first line)."""
Samples = Counter[tuple[Stack, tuple[tuple[str, object, str], ...]]]
"""A value of each stack with its labels (key, value, unit)."""


@dataclass(frozen=True)
class Received:
    """A profile of one sample type that the Collector wrote."""

    resource: Mapping[str, object]
    scope: tuple[str, str]
    sample_type: tuple[str, str]
    period: tuple[str, str, int]
    time_ns: int
    duration_ns: int
    id: str
    attributes: Mapping[str, object]
    samples: Samples


class Collector(RunningServer):
    """A context manager: the process ends with the block."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "received.json"
        self._logs = folder / "logs.json"
        port = free_port()
        config = folder / "collector.yaml"
        config.write_text(CONFIG.format(port=port, path=self._path, logs=self._logs))
        gate = "--feature-gates=+service.profilesSupport"
        command: list[str | Path] = [built(COLLECTOR), "--config", f"file:{config}", gate]
        super().__init__(command, port, folder / "collector.log")

    def profiles(self, count: int) -> list[Received]:
        """Wait until it wrote that many profiles; all that it wrote."""
        until = monotonic() + DEADLINE_S
        while len(found := list(self._written())) < count:
            assert monotonic() < until, f"{len(found)} of {count} profiles"
            sleep(0.01)
        return found

    def logs(self, count: int) -> list[dict[str, Any]]:
        """Wait until it wrote that many log records; all that it wrote."""
        until = monotonic() + DEADLINE_S
        while True:
            text = self._logs.read_text() if self._logs.exists() else ""
            lines = map(json.loads, text.split("\n")[:-1])
            if len(found := [record for line in lines for record in _records(line)]) >= count:
                return found
            assert monotonic() < until, f"{len(found)} of {count} log records"
            sleep(0.01)

    def _written(self) -> Iterator[Received]:
        text = self._path.read_text() if self._path.exists() else ""
        for line in text.split("\n")[:-1]:
            yield from _received(json.loads(line))


def _received(request: dict[str, Any]) -> Iterator[Received]:
    tables = _Tables(request["dictionary"])
    for resource in request["resourceProfiles"]:
        attributes = {
            tables.key(each): tables.value(each["value"])
            for each in resource["resource"].get("attributes", [])
        }
        for scope in resource["scopeProfiles"]:
            about = scope["scope"].get("name", ""), scope["scope"].get("version", "")
            for profile in scope["profiles"]:
                yield tables.profile(profile, attributes, about)


def _records(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The log records of a request in the JSON of OTLP."""
    for resource in request["resourceLogs"]:
        for scope in resource["scopeLogs"]:
            for record in scope["logRecords"]:
                yield {
                    "resource": _attributes(resource["resource"]["attributes"]),
                    "scope": scope["scope"]["name"],
                    "time_ns": int(record["timeUnixNano"]),
                    "severity": record["severityNumber"],
                    "severity_text": record["severityText"],
                    "event": record["eventName"],
                    "body": record["body"]["stringValue"],
                    "attributes": _attributes(record["attributes"]),
                }


def _attributes(attributes: list[dict[str, Any]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for each in attributes:
        ((kind, value),) = each["value"].items()
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


class _Tables:
    """The dictionary of a request in the JSON of OTLP, which leaves out what is 0."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self._tables = tables

    def key(self, attribute: dict[str, Any]) -> str:
        return str(attribute.get("key") or self._string(attribute.get("keyStrindex", 0)))

    def value(self, value: dict[str, Any]) -> object:
        ((kind, found),) = value.items()
        if kind == "stringValueStrindex":
            return self._string(found)
        if kind == "arrayValue":
            return [self.value(each) for each in found.get("values", [])]
        return int(found) if kind == "intValue" else found

    def profile(
        self, profile: dict[str, Any], resource: Mapping[str, object], scope: tuple[str, str]
    ) -> Received:
        samples: Samples = Counter()
        for each in profile.get("samples", []):
            (value,) = each["values"]
            labels = (self._attribute(index) for index in each.get("attributeIndices", []))
            stack = self._stack(each.get("stackIndex", 0))
            samples[stack, tuple(sorted(labels, key=repr))] += int(value)
        attributes = [self._attribute(index) for index in profile.get("attributeIndices", [])]
        period = self._type(profile["periodType"])
        identity = profile.get("profileId", "")
        return Received(
            resource=resource,
            scope=scope,
            sample_type=self._type(profile["sampleType"]),
            period=(*period, int(profile.get("period", 0))),
            time_ns=int(profile.get("timeUnixNano", 0)),
            duration_ns=int(profile.get("durationNano", 0)),
            id=identity if len(identity) == 32 else b64decode(identity).hex(),
            attributes={key: value for key, value, _ in attributes},
            samples=samples,
        )

    def _type(self, found: dict[str, int]) -> tuple[str, str]:
        return self._string(found.get("typeStrindex", 0)), self._string(
            found.get("unitStrindex", 0)
        )

    def _attribute(self, index: int) -> tuple[str, object, str]:
        found = self._tables["attributeTable"][index]
        unit = self._string(found.get("unitStrindex", 0))
        return self.key(found), self.value(found["value"]), unit

    def _stack(self, index: int) -> Stack:
        indices = self._tables["stackTable"][index].get("locationIndices", [])
        return tuple(map(self._location, indices))

    def _location(self, index: int) -> tuple[int, tuple[tuple[str, str, int, int], ...]]:
        found = self._tables["locationTable"][index]
        frames = tuple(map(self._frame, found.get("lines", [])))
        return int(found.get("address", 0)), frames

    def _frame(self, line: dict[str, Any]) -> tuple[str, str, int, int]:
        found = self._tables["functionTable"][line.get("functionIndex", 0)]
        name = self._string(found.get("nameStrindex", 0))
        file = self._string(found.get("filenameStrindex", 0))
        return name, file, int(line.get("line", 0)), int(found.get("startLine", 0))

    def _string(self, index: int) -> str:
        return str(self._tables["stringTable"][index])
