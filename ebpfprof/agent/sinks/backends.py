"""The backends, by type of sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.sinks.http_client import HttpClient
from ebpfprof.agent.sinks.otlp import OtlpBackend, OtlpDelivery
from ebpfprof.agent.sinks.parca import ParcaBackend
from ebpfprof.agent.sinks.pyroscope import PyroscopeBackend
from ebpfprof.agent.sinks.remote import Backend, RemoteDelivery

if TYPE_CHECKING:
    from ebpfprof.agent.settings import SinkSettings
    from ebpfprof.agent.sinks.sink import Delivery

BACKENDS: Final[dict[str, Callable[[], Backend]]] = {
    "otlp": OtlpBackend,
    "parca": ParcaBackend,
    "pyroscope": PyroscopeBackend,
}


def remote_delivery(settings: SinkSettings) -> Delivery:
    """The delivery to the backend of these settings."""
    backend = BACKENDS[settings.type]()
    windows = RemoteDelivery(HttpClient(settings, backend.path), backend)
    if settings.type != "otlp":
        return windows
    base = settings.url.rstrip("/").removesuffix(backend.path)
    return OtlpDelivery(windows, HttpClient(replace(settings, url=base), OtlpDelivery.logs_path))
