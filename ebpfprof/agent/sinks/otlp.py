"""OTLP profiles and logs over HTTP, to an OpenTelemetry Collector or another OTLP receiver."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from typing import Final

from google.protobuf.message import DecodeError

import ebpfprof
from ebpfprof.agent.sinks.http_client import Answer, HttpClient
from ebpfprof.agent.sinks.remote import RemoteDelivery, WindowPart, accept
from ebpfprof.agent.sinks.series import part_id, series_name
from ebpfprof.agent.sinks.sink import Delivery, Item, Refused
from ebpfprof.export import otlp
from ebpfprof.export.otlp.schema import message_class
from ebpfprof.profile.service import ServiceFindings, ServiceWindow

_SEVERITIES: Final = {"note": otlp.INFO, "risk": otlp.WARN, "slow": otlp.WARN, "stuck": otlp.ERROR}
"""By the level of a finding."""


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


class OtlpDelivery:
    """Profiles as RemoteDelivery sends them, and findings as log records.

    A receiver may have no pipeline for logs: once it answers that, no more are sent.
    """

    logs_path = "/v1/logs"

    def __init__(self, profiles: RemoteDelivery, logs: HttpClient) -> None:
        self._profiles, self._logs = profiles, logs
        self._has_logs = True

    def deliver(self, item: Item) -> None:
        """Send a window or findings. Raises RetryLater, Refused."""
        if not isinstance(item, ServiceFindings):
            self._profiles.deliver(item)
        elif item.findings and self._has_logs:
            body = gzip.compress(log_request(item), compresslevel=1, mtime=0)
            try:
                accept(self._logs.post(body, OtlpBackend.headers), _judge_logs)
            except Refused as error:
                self._has_logs = error.reason != "refused"
                raise Refused(f"findings: {error}", error.reason) from error

    def beat(self) -> None:
        """Nothing to do."""

    def go_on(self, before: Delivery) -> None:
        """Continue the window of a predecessor."""
        if isinstance(before, OtlpDelivery):
            self._profiles.go_on(before._profiles)

    def close(self) -> None:
        """Close the connections."""
        self._profiles.close()
        self._logs.close()


def log_request(item: ServiceFindings) -> bytes:
    """The ExportLogsServiceRequest: a record for each finding."""
    lines = [
        otlp.LogLine(
            time_ns=round(item.time_s * 1e9),
            observed_ns=round(item.time_s * 1e9),
            severity=_SEVERITIES.get(finding.level, otlp.WARN),
            event="ebpfprof.finding",
            body=finding.title,
            attributes={
                "ebpfprof.finding.kind": finding.kind,
                "ebpfprof.finding.level": finding.level,
                "ebpfprof.finding.evidence": "\n".join(finding.lines),
                "ebpfprof.finding.place": finding.place,
                "ebpfprof.finding.since": datetime.fromtimestamp(finding.since_s, UTC).isoformat(),
                "process.pid": item.pid,
                **({} if finding.share is None else {"ebpfprof.finding.share": finding.share}),
            },
        )
        for finding in item.findings
    ]
    return otlp.encode_logs(lines, resource_attributes(item), "ebpfprof", ebpfprof.__version__)


def _judge_logs(answer: Answer) -> None:
    try:
        message = message_class("ExportLogsServiceResponse").FromString(answer.body)
    except DecodeError:
        raise Refused(f"the response is not OTLP: {answer.text}", "bad_answer") from None
    if message.partial_success.rejected_log_records:
        raise Refused(f"it rejected some: {answer.text}", "partly_refused")


def resource_attributes(item: ServiceWindow | ServiceFindings) -> dict[str, str]:
    """The attributes of the process, by the semantic conventions, and its labels."""
    identity = item.identity
    known = {
        "service.name": identity.service,
        "service.namespace": identity.namespace,
        "service.version": identity.version,
        "host.name": identity.node,
        "k8s.pod.name": identity.pod,
        "k8s.container.name": identity.container if identity.pod else "",
        "container.name": "" if identity.pod else identity.container,
        "process.executable.name": item.command,
        "process.runtime.name": "go",
        "process.runtime.version": item.go_version if isinstance(item, ServiceWindow) else "",
        "telemetry.distro.name": "ebpfprof",
        "telemetry.distro.version": ebpfprof.__version__,
    }
    return {**identity.labels, **{name: value for name, value in known.items() if value}}
