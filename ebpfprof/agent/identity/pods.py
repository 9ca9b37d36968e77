"""The pod of a process, from all sources.

Names are the same in all of them. Labels and annotations differ: the API server has the current
ones, the container runtime those with which the pod started, and the node's files only a few. So
they come from the first source that knows the pod.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.identity.api_server import TIMEOUT_S, ApiServer
from ebpfprof.agent.identity.cri import CriSocket
from ebpfprof.agent.identity.kubernetes import NodeFiles, PodNames
from ebpfprof.agent.identity.pod_source import AskedSource
from ebpfprof.agent.kubernetes_settings import IN_CLUSTER
from ebpfprof.agent.settings import SinkSettings

if TYPE_CHECKING:
    from ebpfprof.agent.kubernetes_settings import KubernetesSettings
    from ebpfprof.agent.settings import Settings
    from ebpfprof.discovery.processes import GoProcess

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder with a pod's token and the certificate authority of the API server."""
HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"


class Pods:
    """The pods of this node, from sources, the most trusted first, and the files below `root`."""

    def __init__(self, root: str = "/", sources: Sequence[AskedSource] = ()) -> None:
        self.sources = tuple(sources)
        self._files = NodeFiles(root)

    def of(self, process: GoProcess) -> PodNames:
        """The names of a process's pod; empty names without one."""
        files = self._files.of(process.container, process.pod)
        asked = (source.of(process) for source in self.sources)
        known = [*(names for names in asked if names is not None), files]
        if len(known) == 1:
            return files
        first = known[0]
        return PodNames(
            namespace=next((names.namespace for names in known if names.namespace), ""),
            pod=next((names.pod for names in known if names.pod), ""),
            container=next((names.container for names in known if names.container), ""),
            uid=first.uid,
            annotations=first.annotations,
            labels=first.labels,
            controller=first.controller,
        )

    def close(self) -> None:
        """Close the connections of all sources."""
        for source in self.sources:
            source.close()


def pods_of_node(settings: Settings, notify: Callable[[str], None]) -> Pods:
    """The pods of this node, from all sources in the settings."""
    wanted = settings.kubernetes
    sources: list[AskedSource] = []
    if wanted.api_server:
        server = ApiServer(api_server_settings(wanted), settings.node_name)
        sources.append(AskedSource(server, notify))
    if wanted.cri_socket:
        path = socket_path(wanted.cri_socket, settings.host_root)
        sources.append(AskedSource(CriSocket(path), notify))
    return Pods(settings.host_root, sources)


def socket_path(socket: str, root: str) -> str:
    """The path of the container runtime's socket, below the root of the node."""
    return os.path.join(root, socket.lstrip("/"))


def api_server_settings(settings: KubernetesSettings) -> SinkSettings:
    """How to reach the API server, as settings for HttpClient."""
    token, authority = settings.api_token_file, settings.api_ca_file
    url = settings.api_server
    if url == IN_CLUSTER:
        host, port = os.environ.get(HOST, ""), os.environ.get(_PORT, "443")
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        token = token or f"{SERVICE_ACCOUNT}/token"
        authority = authority or f"{SERVICE_ACCOUNT}/ca.crt"
    return SinkSettings(
        "", "", url=url, bearer_token_file=token, ca_file=authority, timeout=TIMEOUT_S
    )
