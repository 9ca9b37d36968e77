"""The pods of this node, from the Kubernetes API server.

Pods are listed, not watched. The server answers a list from memory (resourceVersion=0); one is
needed when a pod starts and every five minutes, and it needs only the right to list. A watch would
report every change of state of every pod, which does not affect names. Only metadata is requested:
the specification of a pod, such as its environment, never gets here.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from ebpfprof.agent.identity.kubernetes import MAX_TEXT, PodNames, dashed, texts
from ebpfprof.agent.identity.pod_source import KnownPods, PodSourceError
from ebpfprof.agent.identity.workloads import Controller
from ebpfprof.agent.sinks.http_client import Answer, HttpClient
from ebpfprof.agent.sinks.sink import RetryLater
from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.agent.settings import SinkSettings
    from ebpfprof.discovery.processes import GoProcess

TIMEOUT_S: Final = 5.0
MOST_BYTES: Final = 16 << 20
"""The longest response: 500 pods have about 2 MiB of metadata."""
MOST_PODS: Final = 4096
_PATH: Final = "/api/v1/pods"
_ACCEPT: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
)
_OF_STATIC: Final = "kubernetes.io/config.hash"
"""The annotation with the uid that the kubelet uses for a static pod on its node."""
_MESSAGE: Final = re.compile(r'"message": ?"((?:[^"\\]|\\.)*)')
_GONE: Final = 410


class ApiServer:
    """An API server: its address, our token and its certificate authority."""

    source = "api_server"

    def __init__(self, settings: SinkSettings, node: str) -> None:
        self._client, self._node = HttpClient(settings, _PATH), node

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"The API server at {printable(self._client.settings.url)}"

    def may_know(self, process: GoProcess) -> bool:
        """Whether the process is in a pod."""
        return process.pod is not None

    def ask(self) -> KnownPods:
        """The pods of this node. Raises PodSourceError."""
        answer = self._list(resourceVersion="0")
        if answer.status == _GONE:  # it has no list in memory
            answer = self._list()
        if answer.status != 200:
            raise PodSourceError(_refusal(answer), answer.after_s)
        if len(answer.body) > MOST_BYTES:
            raise PodSourceError(f"the response is longer than {MOST_BYTES >> 20} MiB")
        pods = pods_in(answer.body)
        if not pods.by_uid:
            raise PodSourceError(
                f"it has no pod on node {self._node!r}: set node, or NODE_NAME, to the node's name "
                "in Kubernetes"
            )
        return pods

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _list(self, **more: str) -> Answer:
        query = urlencode({"fieldSelector": f"spec.nodeName={self._node}", **more})
        try:
            return self._client.get(query, {"Accept": _ACCEPT}, most_bytes=MOST_BYTES + 1)
        except RetryLater as error:
            raise PodSourceError(str(error)) from None


def _refusal(answer: Answer) -> str:
    """The meaning of a status, as the end of a sentence, with the server's own text."""
    said = f" ({_message(answer)})" if answer.text else ""
    match answer.status:
        case 401:
            return f"it rejected the token{said}: renew api_token_file"
        case 403:
            return (
                f"listing pods is not allowed{said}: bind a ClusterRole with the verb list on pods "
                "to the agent's service account, as the chart does"
            )
        case 429 | 500 | 502 | 503 | 504:
            return f"it is not available: {answer.status}{said}"
        case _:
            return f"the status {answer.status}{said} is not one of an API server"


def _message(answer: Answer) -> str:
    """The message of a Kubernetes Status, else the whole text, which may be cut off."""
    match = _MESSAGE.search(answer.text)
    return match[1].replace('\\"', '"') if match and match[1] else answer.text


def pods_in(data: bytes) -> KnownPods:
    """The pods in a list of pods or of their metadata, in JSON. Raises PodSourceError."""
    try:
        items = json.loads(data)["items"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PodSourceError("the response is not a list of pods") from None
    if not isinstance(items, list | None):
        raise PodSourceError("the response is not a list of pods")
    by_uid: dict[str, PodNames] = {}
    for item in (items or [])[:MOST_PODS]:
        metadata = item.get("metadata") if isinstance(item, dict) else None
        if not isinstance(metadata, dict):
            raise PodSourceError("the response has a pod without metadata")
        pod = _pod(metadata)
        by_uid[dashed(pod.annotations.get(_OF_STATIC) or pod.uid)] = pod
    return KnownPods({}, by_uid)


def _pod(metadata: dict[str, Any]) -> PodNames:
    return PodNames(
        namespace=_text(metadata, "namespace"),
        pod=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        annotations=texts(metadata.get("annotations")),
        labels=texts(metadata.get("labels")),
        controller=_controller(metadata.get("ownerReferences")),
    )


def _controller(owners: Any) -> Controller:  # noqa: ANN401 - any value of JSON
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            return Controller(_text(owner, "kind"), _text(owner, "name"))
    return Controller()


def _text(object_: dict[str, Any], name: str) -> str:
    text = object_.get(name)
    return text[:MAX_TEXT] if isinstance(text, str) else ""
