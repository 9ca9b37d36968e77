"""OTLP profiles over HTTP, to an OpenTelemetry Collector or another OTLP receiver."""

from __future__ import annotations

import gzip
from typing import Final

from google.protobuf.message import DecodeError

import ebpfprof
from ebpfprof.agent.sinks.http_client import Answer
from ebpfprof.agent.sinks.remote import WindowPart
from ebpfprof.agent.sinks.series import part_id, series_name
from ebpfprof.agent.sinks.sink import Refused
from ebpfprof.export import otlp
from ebpfprof.export.otlp.schema import message_class
from ebpfprof.profile.service import ServiceWindow


class OtlpBackend:
    """OTLP, as of opentelemetry-proto 1.11 (v1development).

    The scope has the name of the kind. OTLP has no other field that distinguishes a block profile
    from a mutex profile, and Parca uses the scope as the name.
    """

    path = "/v1development/profiles"
    most_samples = 1 << 20
    most_bytes = 16 << 20  # the Collector takes 20 MiB by default
    headers: Final = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    retries_500 = False  # the specification forbids it

    def message(self, part: WindowPart) -> bytes:
        """The ExportProfilesServiceRequest."""
        window = part.window
        source = otlp.ProfileSource(
            attributes=resource_attributes(window),
            scope=series_name(part.kind),
            version=ebpfprof.__version__,
            id=part_id(window, part.kind, part.number),
        )
        return otlp.encode(part.profile, source)

    def body(self, part: WindowPart, message: bytes) -> bytes:
        """The message, compressed."""
        return gzip.compress(message, compresslevel=1, mtime=0)

    def judge(self, answer: Answer) -> None:
        """Refused for a partial success: rejected profiles must not be sent again."""
        try:
            message = message_class("ExportProfilesServiceResponse").FromString(answer.body)
        except DecodeError:
            raise Refused(f"the response is not OTLP: {answer.text}", "bad_answer") from None
        partial = message.partial_success
        if partial.rejected_profiles:
            raise Refused(f"it rejected a part of the profile: {answer.text}", "partly_refused")


def resource_attributes(window: ServiceWindow) -> dict[str, str]:
    """The attributes of the process, by the semantic conventions, and its labels."""
    identity = window.identity
    known = {
        "service.name": identity.service,
        "service.namespace": identity.namespace,
        "service.version": identity.version,
        "host.name": identity.node,
        "k8s.pod.name": identity.pod,
        "k8s.container.name": identity.container if identity.pod else "",
        "container.name": "" if identity.pod else identity.container,
        "process.executable.name": window.command,
        "process.runtime.name": "go",
        "process.runtime.version": window.go_version,
        "telemetry.distro.name": "ebpfprof",
        "telemetry.distro.version": ebpfprof.__version__,
    }
    return {**identity.labels, **{name: value for name, value in known.items() if value}}
