"""Parca's WriteRaw: pprof files with labels, by its JSON API."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Final

from ebpfprof.agent.sinks.http_client import Answer
from ebpfprof.agent.sinks.remote import WindowPart, require_object
from ebpfprof.agent.sinks.series import series_labels, series_name
from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class ParcaBackend:
    """Parca's API.

    Some requests crash a Parca server (v0.28): an empty profile, one without a period type, a
    series without labels. message() refuses those.
    """

    path = "/api/profiles/writeraw"
    most_samples = 1 << 20
    most_bytes = 32 << 20  # it takes messages of 64 MiB
    headers: Final = {"Content-Type": "application/json"}
    retries_500 = True

    def message(self, part: WindowPart) -> bytes:
        """A profile.proto. Raises InvalidProfile for a profile that could crash the server."""
        profile, name = part.profile, series_name(part.kind)
        types = (*profile.sample_types, profile.period_type)
        if not (profile.samples and types[:-1] and all(one.type and one.unit for one in types)):
            raise InvalidProfile("Parca rejects profiles without samples or sample types.")
        if not all(map(_NAME.fullmatch, (name, *(one.type for one in types)))):
            raise InvalidProfile(f"Parca rejects these names: {name}, {types}.")
        return pprof.message(profile)

    def body(self, part: WindowPart, message: bytes) -> bytes:
        """A WriteRawRequest in JSON."""
        labels = {"__name__": series_name(part.kind), **series_labels(part.window)}
        series = {
            "labels": {"labels": [{"name": key, "value": value} for key, value in labels.items()]},
            "samples": [{"rawProfile": b64encode(pprof.compressed(message)).decode()}],
        }
        return json.dumps({"series": [series]}).encode()

    def judge(self, answer: Answer) -> None:
        """Refused for a response that is not Parca's, such as that of a proxy."""
        require_object(answer, "Parca")
