"""The table [kubernetes] of the agent's file: sources of pod metadata besides the node's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ebpfprof.settings.setting import setting
from ebpfprof.settings.values import PathValue, UrlValue

IN_CLUSTER: Final = "in-cluster"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """The table [kubernetes]; "" for a source that is not used."""

    cri_socket: str = setting(
        PathValue('an absolute path, such as "/run/containerd/containerd.sock"'),
        "",
        "The socket of the container runtime, below host_root, for pod labels and annotations. "
        "Access to it means root on the node. It needs the Python package h2.",
    )
    api_server: str = setting(
        UrlValue(
            f'"{IN_CLUSTER}" or an address, such as "https://10.0.0.1:6443"',
            words=(IN_CLUSTER,),
            login="api_token_file",
        ),
        "",
        "The Kubernetes API server, for labels, annotations and controllers of the pods of this "
        "node. It needs the right to list pods.",
    )
    api_token_file: str = setting(
        PathValue(),
        "",
        f"A file with the token; by default, with {IN_CLUSTER}, that of the pod's service account.",
    )
    api_ca_file: str = setting(
        PathValue(),
        "",
        "The certificate authorities (PEM) for the API server; by default those of the system, "
        f"with {IN_CLUSTER} that of the pod's service account.",
    )
