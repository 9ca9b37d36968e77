"""Pyroscope's push.v1 as a real one answered, but stricter: what it takes and cuts is refused, too.

The answers are those of Pyroscope 2 (November 2026, one binary with the storage of version 1).
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from time import time
from typing import Any

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests import profilerules
from tests.backends.scripted_server import Received, answer

PATH = "/push.v1.PusherService/Push"
NAMES = {
    "block": {"contentions:count:contentions:count", "delay:nanoseconds:contentions:count"},
    "mutex": {"contentions:count:contentions:count", "delay:nanoseconds:contentions:count"},
    "goroutine": {"goroutine:count:goroutine:count"},
    "memory": {"inuse_objects:count:space:bytes", "inuse_space:bytes:space:bytes"},
    "process_cpu": {"cpu:nanoseconds:cpu:nanoseconds", "samples:count:cpu:nanoseconds"},
    "wall": {"samples:count:wall:nanoseconds", "wall:nanoseconds:wall:nanoseconds"},
}
"""The types of profiles by name, as its user interface and its other clients have them."""
MAX_LABELS = 30
MAX_NAME, MAX_VALUE = 1024, 2048


class PushError(Exception):
    """An answer of connect: a status, a code and a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def invalid(message: str) -> PushError:
    return PushError(400, "invalid_argument", message)


@dataclass(frozen=True)
class Pushed:
    """A profile that it took."""

    labels: dict[str, str]
    id: str
    data: bytes

    @property
    def profile(self) -> Profile:
        return pprof.decode(self.data)


@dataclass
class StrictPyroscope:
    """A step of a ScriptedServer; `now` is its clock."""

    now: Callable[[], float] = time
    pushed: list[Pushed] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __call__(self, request: Received) -> bytes:
        try:
            self.pushed += self._taken(request)
        except PushError as error:
            self.refused.append(str(error))
            body = json.dumps({"code": error.code, "message": str(error)}).encode()
            return answer(error.status, body, content_type="application/json")
        return answer(200, b"{}", content_type="application/json")

    def _taken(self, request: Received) -> list[Pushed]:
        if request.path != PATH:
            raise PushError(404, "unimplemented", f"no {request.path}")
        if request.method != "POST":
            raise PushError(405, "unimplemented", request.method)
        if request.headers.get("content-type") != "application/json":
            raise PushError(415, "unknown", "content type")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise PushError(501, "unimplemented", "unknown compression")
        series = json.loads(request.body)["series"]
        if len(series) != 1:
            raise invalid(f"{len(series)} series: of several, the right ones would be stored twice")
        labels = _labels(series[0]["labels"])
        return [
            Pushed(labels, sery["ID"], self._profile(labels["__name__"], sery))
            for sery in series[0]["samples"]
        ]

    def _profile(self, name: str, sample: dict[str, Any]) -> bytes:
        if len(sample["ID"]) != 36 or sample["ID"] in {each.id for each in self.pushed}:
            raise invalid(f"the id {sample['ID']!r} is none or came before")
        data = b64decode(sample["rawProfile"], validate=True)
        faults = profilerules.pyroscope(data, now_s=self.now())
        if faults:
            raise invalid(faults[0])
        found = pprof.decode(data)
        period = f"{found.period_type.type}:{found.period_type.unit}"
        types = {f"{each.type}:{each.unit}:{period}" for each in found.sample_types}
        if types != NAMES.get(name):
            raise invalid(f"no profile is called {name} and has {types}")
        if not found.samples:
            raise invalid("empty profile")
        return data


def _labels(pairs: list[dict[str, str]]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        name, value = pair["name"], pair["value"]
        if name in labels:
            raise invalid(f"has duplicate label name: '{name}'")
        if not name or len(name) > MAX_NAME or len(value.encode()) > MAX_VALUE or not value:
            raise invalid(f"label '{name}' is empty or too long")
        if not name.isascii() or not name.isidentifier():
            raise invalid(f"label '{name}' needs quotes in queries")
        labels[name] = value
    if not labels.get("__name__"):
        raise invalid(f"invalid labels '{labels}' with error: invalid metric name")
    if not labels.get("service_name"):
        raise invalid("service name is not provided")
    if len(labels) - 2 >= MAX_LABELS:
        raise invalid(f"{len(labels)} labels")
    if "pid" in labels or any(value.isdigit() and len(value) > 2 for value in labels.values()):
        raise invalid("a label that looks like a pid: each makes a series")
    return labels
