"""Checks the settings of [kubernetes]: the files that they name, and h2."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.identity.pods import HOST, api_server_settings, socket_path
from ebpfprof.agent.identity.unary_calls import NO_H2, has_h2
from ebpfprof.agent.kubernetes_settings import IN_CLUSTER
from ebpfprof.agent.sinks.requirements import SettingError
from ebpfprof.agent.sinks.secrets import read_secret
from ebpfprof.agent.sinks.tls import tls_context
from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.agent.kubernetes_settings import KubernetesSettings

_MOST_OF_SOCKET: Final = 107  # unix(7), sun_path


def require_usable(settings: KubernetesSettings, host_root: str) -> None:
    """Check the settings and the files that they name. Raises SettingError."""
    if settings.cri_socket and not has_h2():
        raise SettingError("cri_socket", f"cri_socket {NO_H2}.")
    if len(os.fsencode(socket_path(settings.cri_socket, host_root))) > _MOST_OF_SOCKET:
        raise SettingError(
            "cri_socket",
            f"cri_socket can't be longer than {_MOST_OF_SOCKET} bytes, below host_root.",
        )
    for name in ("api_token_file", "api_ca_file"):
        if getattr(settings, name) and not settings.api_server:
            raise SettingError(name, f"{name} needs an api_server.")
    if settings.api_server:
        _require_api_server(settings)


def _require_api_server(settings: KubernetesSettings) -> None:
    is_in_cluster = settings.api_server == IN_CLUSTER
    if is_in_cluster and not os.environ.get(HOST):
        raise SettingError(
            "api_server",
            f'api_server = "{IN_CLUSTER}" works only inside a pod ({HOST} is not set): set the '
            "address of the API server.",
        )
    server = api_server_settings(settings)
    if server.bearer_token_file:
        name = "api_token_file" if settings.api_token_file else "api_server"
        try:
            read_secret(server.bearer_token_file)
        except ValueError as error:
            path = printable(server.bearer_token_file)
            raise SettingError(name, f"{name}: {path} {error}.") from None
    if not server.ca_file:
        return
    name = "api_ca_file" if settings.api_ca_file else "api_server"
    if not server.url.startswith("https:"):
        raise SettingError(name, f"{name} needs an api_server with https.")
    try:
        tls_context(server)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror
        path = printable(server.ca_file)
        raise SettingError(name, f"{name}: {path} can't be used: {reason}.") from None
