"""The pods of a node, from its container runtime by the Container Runtime Interface (CRI).

Every runtime of Kubernetes has it on a unix socket: containerd, CRI-O, cri-dockerd. Source of the
numbers: k8s.io/cri-api v0.26, pkg/apis/runtime/v1 (the package runtime.v1 since Kubernetes 1.20).
The agent only lists running pods. The socket would also allow changes: access to it means root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from ebpfprof.agent.identity.kubernetes import MAX_TEXT, PodNames, dashed
from ebpfprof.agent.identity.pod_source import KnownPods, PodSourceError
from ebpfprof.agent.identity.unary_calls import UNIMPLEMENTED, CallError, CallSocket
from ebpfprof.console.text import printable
from ebpfprof.export.proto_messages import Messages, ProtoMessage, ProtoPackage

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import GoProcess

TIMEOUT_S: Final = 2.0
MOST_BYTES: Final = 16 << 20
"""The longest response: a pod has up to 256 KiB of annotations, usually a few KiB."""
MOST_CONTAINERS: Final = 4096
_MOST_PAIRS: Final = 256
_MAX_NAME: Final = 60
_SERVICE: Final = "/runtime.v1.RuntimeService/"
_RUNNING: Final = 1  # ContainerState: CONTAINER_RUNNING; SANDBOX_READY of PodSandboxState is 0
_MESSAGES: Final[Messages] = {
    "VersionRequest": {"version": (1, "bytes")},
    "VersionResponse": {"runtime_name": (2, "bytes"), "runtime_version": (3, "bytes")},
    "ListPodSandboxRequest": {"filter": (1, "PodSandboxFilter")},
    "PodSandboxFilter": {"state": (2, "StateValue")},
    "StateValue": {"state": (1, "int32")},
    "ListPodSandboxResponse": {"items": (1, "*PodSandbox")},
    "PodSandbox": {
        "id": (1, "bytes"),
        "metadata": (2, "PodSandboxMetadata"),
        "labels": (5, "*Pair"),
        "annotations": (6, "*Pair"),
    },
    "PodSandboxMetadata": {"name": (1, "bytes"), "uid": (2, "bytes"), "namespace": (3, "bytes")},
    "ListContainersRequest": {"filter": (1, "ContainerFilter")},
    "ContainerFilter": {"state": (2, "StateValue")},
    "ListContainersResponse": {"containers": (1, "*Container")},
    "Container": {
        "id": (1, "bytes"),
        "pod_sandbox_id": (2, "bytes"),
        "metadata": (3, "ContainerMetadata"),
    },
    "ContainerMetadata": {"name": (1, "bytes")},
    "Pair": {"key": (1, "bytes"), "value": (2, "bytes")},  # the entries of a map
}


class CriSocket:
    """A container runtime, at its socket."""

    source = "cri"

    def __init__(self, path: str) -> None:
        self._path = path
        self._runtime = ""

    @property
    def name(self) -> str:
        """Its name in messages."""
        runtime = f" ({self._runtime})" if self._runtime else ""
        return f"The container runtime at {printable(self._path)}{runtime}"

    def may_know(self, process: GoProcess) -> bool:
        """Whether the process is in a container."""
        return process.container is not None

    def ask(self) -> KnownPods:
        """The running pods. Raises PodSourceError."""
        try:
            with CallSocket(self._path, timeout_s=TIMEOUT_S, most_bytes=MOST_BYTES) as connection:
                version = connection.call(f"{_SERVICE}Version", b"")
                self._runtime = runtime_of(version)
                sandboxes = connection.call(f"{_SERVICE}ListPodSandbox", _ready())
                containers = connection.call(f"{_SERVICE}ListContainers", _running())
            return pods_of(sandboxes, containers)
        except CallError as error:
            raise PodSourceError(f"{error}{_way_out(error)}") from None

    def close(self) -> None:
        """Nothing to close."""


def _way_out(error: CallError) -> str:
    """What to do about an error, if known."""
    if error.status != UNIMPLEMENTED:
        return ""
    return (
        " (in Docker's own containerd, it is disabled: see disabled_plugins in "
        "/etc/containerd/config.toml)"
    )


@cache
def _package() -> ProtoPackage:
    return ProtoPackage("runtime.v1", _MESSAGES)


def message_class(name: str) -> ProtoMessage:
    """The class of the message of that name."""
    return _package().message_class(name)


def _ready() -> bytes:
    request = message_class("ListPodSandboxRequest")()
    request.filter.state.SetInParent()  # SANDBOX_READY is 0
    return bytes(request.SerializeToString())


def _running() -> bytes:
    request = message_class("ListContainersRequest")()
    request.filter.state.state = _RUNNING
    return bytes(request.SerializeToString())


def runtime_of(data: bytes) -> str:
    """The name and version of a runtime, from its VersionResponse. Raises PodSourceError."""
    said = _parsed("VersionResponse", data)
    name, version = _text(said.runtime_name), _text(said.runtime_version)
    if not name:
        raise PodSourceError("the response has no runtime name")
    return printable(f"{name} {version}".strip())[:_MAX_NAME]


def pods_of(sandboxes: bytes, containers: bytes) -> KnownPods:
    """The pods in a ListPodSandboxResponse and a ListContainersResponse. Raises PodSourceError."""
    pods: dict[str, PodNames] = {}
    by_uid: dict[str, PodNames] = {}
    for sandbox in _some(_parsed("ListPodSandboxResponse", sandboxes).items):
        metadata = sandbox.metadata
        uid = dashed(_text(metadata.uid))
        names = PodNames(
            namespace=_text(metadata.namespace),
            pod=_text(metadata.name),
            uid=uid,
            annotations=_texts(sandbox.annotations),
            labels=_texts(sandbox.labels),
        )
        if names.pod:
            pods[_text(sandbox.id)] = names
            by_uid[uid] = names
    by_container = dict(pods)  # a sandbox is a container, too
    for one in _some(_parsed("ListContainersResponse", containers).containers):
        if pod := pods.get(_text(one.pod_sandbox_id)):
            by_container[_text(one.id)] = replace(pod, container=_text(one.metadata.name))
    return KnownPods(by_container, by_uid)


def _parsed(name: str, data: bytes) -> ProtoMessage:
    try:
        return message_class(name).FromString(data)
    except DecodeError:
        raise PodSourceError("the response is not a valid CRI message") from None


def _some(items: Sequence[ProtoMessage]) -> Sequence[ProtoMessage]:
    return items[:MOST_CONTAINERS]


def _texts(pairs: Sequence[ProtoMessage]) -> dict[str, str]:
    """The entries of a map, without values that are too long."""
    return {
        _text(pair.key): _text(pair.value)
        for pair in pairs[:_MOST_PAIRS]
        if len(pair.value) <= MAX_TEXT
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")[:MAX_TEXT]
