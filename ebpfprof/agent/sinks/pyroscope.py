"""Pyroscope's push.v1: pprof files with labels, in JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from typing import Final

from ebpfprof.agent.sinks.http_client import Answer
from ebpfprof.agent.sinks.remote import WindowPart, require_object
from ebpfprof.agent.sinks.series import part_id, series_labels, series_name
from ebpfprof.export import pprof
from ebpfprof.profile.delta import merged
from ebpfprof.profile.lock_labels import ADDRESS
from ebpfprof.profile.model import Profile

_MAX_VALUE: Final = 2048


class PyroscopeBackend:
    """The API of Pyroscope 1 and 2, with its default limits.

    A request has one series. With several, an error response would not say which ones were stored,
    and a repeated request would store them twice.
    """

    path = "/push.v1.PusherService/Push"
    most_samples = 16_000
    most_bytes = 4 << 20  # of the uncompressed profile
    headers: Final = {"Content-Type": "application/json"}
    retries_500 = True

    def message(self, part: WindowPart) -> bytes:
        """A profile.proto without lock addresses: each set of sample labels becomes a series."""
        return pprof.message(_without_addresses(part.profile))

    def body(self, part: WindowPart, message: bytes) -> bytes:
        """A PushRequest in JSON."""
        labels = {"__name__": series_name(part.kind), **series_labels(part.window)}
        series = {
            "labels": [{"name": name, "value": _cut(value)} for name, value in labels.items()],
            "samples": [
                {
                    "ID": part_id(part.window, part.kind, part.number),
                    "rawProfile": b64encode(pprof.compressed(message)).decode(),
                }
            ],
        }
        return json.dumps({"series": [series]}).encode()

    def judge(self, answer: Answer) -> None:
        """Refused for a response that is not Pyroscope's, such as that of a proxy."""
        require_object(answer, "Pyroscope")


def _without_addresses(profile: Profile) -> Profile:
    """The profile without lock addresses, each of which would become a series."""
    if not any(label.key == ADDRESS for sample in profile.samples for label in sample.labels):
        return profile
    samples = tuple(
        replace(sample, labels=tuple(label for label in sample.labels if label.key != ADDRESS))
        for sample in profile.samples
    )
    return replace(merged([replace(profile, samples=samples)]), comments=profile.comments)


def _cut(value: str) -> str:
    return value.encode()[:_MAX_VALUE].decode(errors="ignore")
