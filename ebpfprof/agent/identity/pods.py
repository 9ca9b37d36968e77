"""The pod of a process, by all that know it.

Names are the same everywhere. Of labels and annotations the API server has those of now, the
container runtime those with which the pod began, and the node's files only some. So all of them are
taken from the first of these that knows the pod.
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
"""Where a pod finds its token and the authority of the API server's certificate."""
HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"


class Pods:
    """The pods of this node, by the files below `root` and by sources, the most trusted first."""

    def __init__(self, root: str = "/", sources: Sequence[AskedSource] = ()) -> None:
        self.sources = tuple(sources)
        self._files = NodeFiles(root)

    def of(self, process: GoProcess) -> PodNames:
        """What is known of a process's pod; empty names without one."""
        files = self._files.of(process.container, process.pod)
        said = (each.of(process) for each in self.sources)
        found = [*(names for names in said if names is not None), files]
        if len(found) == 1:
            return files
        first = found[0]
        return PodNames(
            namespace=next((each.namespace for each in found if each.namespace), ""),
            pod=next((each.pod for each in found if each.pod), ""),
            container=next((each.container for each in found if each.container), ""),
            uid=first.uid,
            annotations=first.annotations,
            labels=first.labels,
            controller=first.controller,
        )

    def close(self) -> None:
        """Close the connections of all sources."""
        for each in self.sources:
            each.close()


def pods_of_node(settings: Settings, tell: Callable[[str], None]) -> Pods:
    """The pods of this node, by all sources that the settings allow."""
    wanted = settings.kubernetes
    sources: list[AskedSource] = []
    if wanted.api_server:
        server = ApiServer(api_server_settings(wanted), settings.node_name)
        sources.append(AskedSource(server, tell))
    if wanted.cri_socket:
        path = socket_path(wanted.cri_socket, settings.host_root)
        sources.append(AskedSource(CriSocket(path), tell))
    return Pods(settings.host_root, sources)


def socket_path(socket: str, root: str) -> str:
    """Where the socket of the container runtime is in sight, below the root of the node."""
    return os.path.join(root, socket.lstrip("/"))


def api_server_settings(settings: KubernetesSettings) -> SinkSettings:
    """How to reach the API server, in the terms of our client of HTTP."""
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
