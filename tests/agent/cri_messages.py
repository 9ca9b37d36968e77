"""What tests say to a container runtime besides, and what a made-up runtime answers.

Source of the numbers: k8s.io/cri-api v0.26, pkg/apis/runtime/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ebpfprof.export.proto_messages import Messages, ProtoMessage, ProtoPackage

_MESSAGES: Messages = {
    "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig")},
    "RunPodSandboxResponse": {"pod_sandbox_id": (1, "bytes")},
    "PodSandboxConfig": {
        "metadata": (1, "PodSandboxMetadata"),
        "labels": (6, "*Pair"),
        "annotations": (7, "*Pair"),
        "linux": (8, "LinuxPodSandboxConfig"),
    },
    "PodSandboxMetadata": {"name": (1, "bytes"), "uid": (2, "bytes"), "namespace": (3, "bytes")},
    "LinuxPodSandboxConfig": {
        "cgroup_parent": (1, "bytes"),
        "security_context": (2, "LinuxSandboxSecurityContext"),
    },
    "LinuxSandboxSecurityContext": {"namespace_options": (1, "NamespaceOption")},
    "NamespaceOption": {"network": (1, "int32")},
    "PodSandboxRequest": {"pod_sandbox_id": (1, "bytes")},
    "CreateContainerRequest": {
        "pod_sandbox_id": (1, "bytes"),
        "config": (2, "ContainerConfig"),
        "sandbox_config": (3, "PodSandboxConfig"),
    },
    "CreateContainerResponse": {"container_id": (1, "bytes")},
    "ContainerConfig": {
        "metadata": (1, "ContainerMetadata"),
        "image": (2, "ImageSpec"),
        "command": (3, "*bytes"),
        "envs": (6, "*Pair"),
        "stdin": (12, "bool"),
    },
    "ContainerMetadata": {"name": (1, "bytes")},
    "ImageSpec": {"image": (1, "bytes")},
    "StartContainerRequest": {"container_id": (1, "bytes")},
    "Pair": {"key": (1, "bytes"), "value": (2, "bytes")},
}
NODE = 2
"""NamespaceMode: the namespace of the node."""


@cache
def _package() -> ProtoPackage:
    return ProtoPackage("cri.tests", _MESSAGES)


def made(message: str, /, **fields: ProtoMessage) -> ProtoMessage:
    """A message of that name with these fields."""
    return _package().message_class(message)(**fields)


def pairs(texts: Mapping[str, str]) -> list[ProtoMessage]:
    """A map."""
    return [made("Pair", key=k.encode(), value=v.encode()) for k, v in texts.items()]


def answer_id(name: str, field: str, data: bytes) -> str:
    """An id in an answer."""
    return str(getattr(_package().message_class(name).FromString(data), field).decode())
