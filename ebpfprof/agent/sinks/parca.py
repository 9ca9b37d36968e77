"""Parca's WriteRaw: pprof files with labels, by its JSON interface."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from typing import Final

from ebpfprof.agent.sinks.http_client import Answer
from ebpfprof.agent.sinks.remote import PushRequest, WindowPart, require_object
from ebpfprof.agent.sinks.series import series_labels, series_name
from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof

_HEADERS: Final = {"Content-Type": "application/json"}
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class ParcaBackend:
    """The interface of Parca.

    Some requests end a Parca server (v0.28): a profile that is empty or has no type of period, a
    series without labels. What is sent has all of them.
    """

    path = "/api/profiles/writeraw"
    most_samples = 1 << 20
    most_bytes = 32 << 20  # it takes messages of 64 MiB
    retries_500 = True

    def request(self, part: WindowPart) -> PushRequest:
        """The request. Raises InvalidProfile for a profile that could end the server."""
        profile, name = part.profile, series_name(part.kind)
        types = (*profile.sample_types, profile.period_type)
        if not (profile.samples and types[:-1] and all(each.type and each.unit for each in types)):
            raise InvalidProfile("It has no samples or types, which Parca does not bear.")
        if not all(map(_NAME.fullmatch, (name, *(each.type for each in types)))):
            raise InvalidProfile(f"Parca has no such name of a profile: {name}, {types}.")
        labels = {"__name__": name, **series_labels(part.window)}
        data = pprof.encode(profile)
        series = {
            "labels": {"labels": [{"name": key, "value": value} for key, value in labels.items()]},
            "samples": [{"rawProfile": b64encode(data).decode()}],
        }
        body = json.dumps({"series": [series]}).encode()
        return PushRequest(body, _HEADERS, len(gzip.decompress(data)))

    def judge(self, answer: Answer) -> None:
        """Refused for what no Parca answers, but perhaps a proxy in front of it."""
        require_object(answer, "Parca")
