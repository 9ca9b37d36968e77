"""The pods of this node as the API server of Kubernetes knows them.

We list them, and don't watch: a list is answered from the server's memory (resourceVersion=0), is
wanted when a pod begins and every five minutes, and needs no more than the right to list. A watch
would get each change of state of each pod, which says nothing about its name. We ask for metadata
only: what stands in the specification of a pod, such as its environment, never gets here.
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
"""The longest answer: 500 pods have some 2 MiB of metadata."""
MOST_PODS: Final = 4096
_PATH: Final = "/api/v1/pods"
_ACCEPT: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
)
_OF_STATIC: Final = "kubernetes.io/config.hash"
"""The annotation of a static pod that has the uid by which the kubelet calls it on the node."""
_MESSAGE: Final = re.compile(r'"message": ?"((?:[^"\\]|\\.)*)')
_GONE: Final = 410


class ApiServer:
    """An API server, by its address, our token and the authority of its certificate."""

    source = "api_server"

    def __init__(self, settings: SinkSettings, node: str) -> None:
        self._client, self._node = HttpClient(settings, _PATH), node

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"The API server at {printable(self._client.settings.url)}"

    def may_know(self, process: GoProcess) -> bool:
        """Whether the process is in a pod."""
        return process.pod is not None

    def ask(self) -> KnownPods:
        """The pods of this node. Raises PodSourceError."""
        answer = self._list(resourceVersion="0")
        if answer.status == _GONE:  # it has no list in its memory
            answer = self._list()
        if answer.status != 200:
            raise PodSourceError(_refusal(answer), answer.after_s)
        if len(answer.body) > MOST_BYTES:
            raise PodSourceError(f"its answer is longer than {MOST_BYTES >> 20} MiB")
        found = pods_in(answer.body)
        if not found.by_uid:
            raise PodSourceError(
                f"it has no pod on a node called {self._node!r}: the setting node, or NODE_NAME, "
                "must have the node's name in Kubernetes"
            )
        return found

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
    """What a status means, as the end of a sentence; with the server's own words."""
    said = f" ({_message(answer)})" if answer.text else ""
    match answer.status:
        case 401:
            return f"it does not know our token{said}: renew api_token_file"
        case 403:
            return (
                f"it does not let us list pods{said}: bind a ClusterRole with the verb list on "
                "pods to our service account, as the chart does"
            )
        case 429 | 500 | 502 | 503 | 504:
            return f"it can't answer now: {answer.status}{said}"
        case _:
            return f"it answers {answer.status}{said}, as no API server does"


def _message(answer: Answer) -> str:
    """The message of a Status of Kubernetes, else what was said; the text may be cut off."""
    match = _MESSAGE.search(answer.text)
    return match[1].replace('\\"', '"') if match and match[1] else answer.text


def pods_in(data: bytes) -> KnownPods:
    """The pods in a list of pods or of their metadata, in JSON. Raises PodSourceError."""
    try:
        items = json.loads(data)["items"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PodSourceError("its answer is no list of pods") from None
    if not isinstance(items, list | None):
        raise PodSourceError("its answer is no list of pods")
    by_uid: dict[str, PodNames] = {}
    for each in (items or [])[:MOST_PODS]:
        metadata = each.get("metadata") if isinstance(each, dict) else None
        if not isinstance(metadata, dict):
            raise PodSourceError("its answer has a pod without metadata")
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
    for each in owners if isinstance(owners, list) else ():
        if isinstance(each, dict) and each.get("controller") is True:
            return Controller(_text(each, "kind"), _text(each, "name"))
    return Controller()


def _text(found: dict[str, Any], name: str) -> str:
    text = found.get(name)
    return text[:MAX_TEXT] if isinstance(text, str) else ""
