"""The table [kubernetes] of the agent's file: whom to ask about pods besides the node's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ebpfprof.agent.setting import Setting
from ebpfprof.agent.values import PathValue, UrlValue

IN_CLUSTER: Final = "in-cluster"
KUBERNETES: Final = (
    Setting(
        "cri_socket",
        PathValue('an absolute path, such as "/run/containerd/containerd.sock"'),
        "",
        "the socket of the container runtime, below host_root, for labels and annotations of "
        "pods; a process that may use it is root on the node; needs the Python package h2",
    ),
    Setting(
        "api_server",
        UrlValue(
            f'"{IN_CLUSTER}" or an address, such as "https://10.0.0.1:6443"',
            words=(IN_CLUSTER,),
            login="api_token_file",
        ),
        "",
        "the API server of Kubernetes, for labels, annotations and controllers of the pods of this "
        "node; needs the right to list pods",
    ),
    Setting(
        "api_token_file",
        PathValue(),
        "",
        f"a file with our token; with {IN_CLUSTER} that of the pod's service account",
    ),
    Setting(
        "api_ca_file",
        PathValue(),
        "",
        "the authorities (PEM) that sign the API server's certificate; without it, those of the "
        f"system, with {IN_CLUSTER} that of the pod's service account",
    ),
)


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """The table [kubernetes]; "" for what is not to be asked."""

    cri_socket: str = ""
    api_server: str = ""
    api_token_file: str = ""
    api_ca_file: str = ""
