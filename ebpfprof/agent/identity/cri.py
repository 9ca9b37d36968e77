"""The pods of a node as its container runtime knows them: the Container Runtime Interface.

Any runtime of Kubernetes has it, on a unix socket: containerd, CRI-O, cri-dockerd. Source of the
numbers: k8s.io/cri-api v0.26, pkg/apis/runtime/v1 (the package runtime.v1 since Kubernetes 1.20).
We ask for what runs, and change nothing; but the socket itself would let us: it gives root.
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
"""The longest answer: a pod of Kubernetes has up to 256 KiB of annotations, mostly a few KiB."""
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
    "Pair": {"key": (1, "bytes"), "value": (2, "bytes")},  # what a map consists of
}


class CriSocket:
    """A container runtime, by its socket."""

    source = "cri"

    def __init__(self, path: str) -> None:
        self._path = path
        self._runtime = ""

    @property
    def name(self) -> str:
        """What messages call it."""
        runtime = f" ({self._runtime})" if self._runtime else ""
        return f"The container runtime at {printable(self._path)}{runtime}"

    def may_know(self, process: GoProcess) -> bool:
        """Whether the process is in a container."""
        return process.container is not None

    def ask(self) -> KnownPods:
        """The pods that run now. Raises PodSourceError."""
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
        """Nothing stays open."""


def _way_out(error: CallError) -> str:
    """What to do about an error, if we know."""
    if error.status != UNIMPLEMENTED:
        return ""
    return (
        " (Docker's own containerd has it switched off: disabled_plugins in "
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
        raise PodSourceError("its answer has no name of a runtime")
    return printable(f"{name} {version}".strip())[:_MAX_NAME]


def pods_of(sandboxes: bytes, containers: bytes) -> KnownPods:
    """The pods in a ListPodSandboxResponse and a ListContainersResponse. Raises PodSourceError."""
    pods: dict[str, PodNames] = {}
    by_uid: dict[str, PodNames] = {}
    for each in _some(_parsed("ListPodSandboxResponse", sandboxes).items):
        about = each.metadata
        uid = dashed(_text(about.uid))
        found = PodNames(
            namespace=_text(about.namespace),
            pod=_text(about.name),
            uid=uid,
            annotations=_texts(each.annotations),
            labels=_texts(each.labels),
        )
        if found.pod:
            pods[_text(each.id)] = found
            by_uid[uid] = found
    by_container = dict(pods)  # a sandbox is a container, too
    for each in _some(_parsed("ListContainersResponse", containers).containers):
        if pod := pods.get(_text(each.pod_sandbox_id)):
            by_container[_text(each.id)] = replace(pod, container=_text(each.metadata.name))
    return KnownPods(by_container, by_uid)


def _parsed(name: str, data: bytes) -> ProtoMessage:
    try:
        return message_class(name).FromString(data)
    except DecodeError:
        raise PodSourceError("its answer is none of the Container Runtime Interface") from None


def _some(items: Sequence[ProtoMessage]) -> Sequence[ProtoMessage]:
    return items[:MOST_CONTAINERS]


def _texts(pairs: Sequence[ProtoMessage]) -> dict[str, str]:
    """The texts of a map, without those that are too long."""
    return {
        _text(each.key): _text(each.value)
        for each in pairs[:_MOST_PAIRS]
        if len(each.value) <= MAX_TEXT
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")[:MAX_TEXT]
