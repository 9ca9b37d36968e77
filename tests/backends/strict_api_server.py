"""The part of Kubernetes's API server that the agent uses, over TLS, and no more than that.

It knows tokens, a role that may list pods or not, field selectors, and lists of metadata. Whatever
the real one would refuse, and whatever the agent has no reason to ask for, is an error.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.backends.certificates import certificate
from tests.backends.scripted_server import Received, ScriptedServer, Step, answer


def pod(
    name: str,
    namespace: str = "shops",
    uid: str = "",
    *,
    node: str = "n1",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    controller: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """A pod as the API server has it; `controller` is a kind and a name."""
    owners = []
    if controller:
        kind, of = controller
        owners = [
            {"apiVersion": "v1", "kind": "Other", "name": "other", "uid": "1"},
            {"apiVersion": "v1", "kind": kind, "name": of, "uid": "2", "controller": True},
        ]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            **({"labels": dict(labels)} if labels else {}),
            **({"annotations": dict(annotations)} if annotations else {}),
            **({"ownerReferences": owners} if owners else {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "env": [{"name": "KEY", "value": "SECRET-OF-POD"}]}],
        },
    }


class StrictApiServer:
    """A context manager. `steps` are answers that come before those that it gives itself."""

    def __init__(self, folder: Path, *pods: dict[str, Any]) -> None:
        self.pods = list(pods)
        self.steps: list[Step] = []
        self.tokens = {"first-token"}
        self.may_list = True
        self.has_cache = True
        """Whether lists of any version (resourceVersion=0) can be answered."""
        self.ca_file, key = certificate(folder, "kubernetes")
        self.token_file = folder / "token"
        self.token_file.write_text("first-token\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca_file, key)
        self._server = ScriptedServer(then=self._answer, tls=context)
        self.url = self._server.url

    @property
    def asked(self) -> list[str]:
        """The queries of all requests so far."""
        return [urlsplit(each.path).query for each in self._server.received]

    @property
    def connections(self) -> list[int]:
        """By request, the number of its connection."""
        return [each.connection for each in self._server.received]

    def _answer(self, request: Received) -> bytes:
        if self.steps:
            step = self.steps.pop(0)
            return step(request) if callable(step) else step
        if request.headers.get("authorization") not in {f"Bearer {token}" for token in self.tokens}:
            return _status(401, "Unauthorized")
        parts = urlsplit(request.path)
        if (request.method, parts.path) != ("GET", "/api/v1/pods"):
            return _status(403, f"{request.method} {parts.path} is forbidden")
        if not self.may_list:
            return _status(
                403,
                'pods is forbidden: User "system:serviceaccount:ebpfprof:ebpfprof" cannot list '
                'resource "pods" in API group "" at the cluster scope',
            )
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        selector, version = query.pop("fieldSelector", ""), query.pop("resourceVersion", None)
        field, _, node = selector.partition("=")
        if query or field != "spec.nodeName" or version not in (None, "0"):
            return _status(400, f"a request that we should not make: {parts.query}")
        if version == "0" and not self.has_cache:
            return _status(410, "The resourceVersion for the provided list is too old.")
        found = [each for each in self.pods if each["spec"]["nodeName"] == node]
        if "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" not in request.headers["accept"]:
            return _list("PodList", "v1", found)
        metadata = [{"metadata": each["metadata"]} for each in found]
        return _list("PartialObjectMetadataList", "meta.k8s.io/v1", metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()


def _list(kind: str, version: str, items: list[dict[str, Any]]) -> bytes:
    body = {"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "7"}}
    return answer(200, json.dumps({**body, "items": items}).encode())


def _status(code: int, text: str) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    more = {"message": text, "reason": "Other", "details": {"kind": "pods"}, "code": code}
    return answer(code, json.dumps({**body, **more}).encode() + b"\n")
