"""Writes OTLP logs: the request that a receiver of OpenTelemetry takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.export.otlp.schema import message_class

if TYPE_CHECKING:
    from ebpfprof.export.proto_messages import ProtoMessage

INFO: Final = 9
WARN: Final = 13
ERROR: Final = 17
"""Numbers of severities: logs/v1, SeverityNumber."""
_NAMES: Final = {INFO: "INFO", WARN: "WARN", ERROR: "ERROR"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """A record: `body` is a sentence, `event` the name of its kind; times are Unix time in ns."""

    time_ns: int
    observed_ns: int
    severity: int
    event: str
    body: str
    attributes: Mapping[str, str | float]


def encode_logs(
    lines: Iterable[LogLine], resource: Mapping[str, str], scope: str, version: str
) -> bytes:
    """An ExportLogsServiceRequest with records of one resource."""
    request = message_class("ExportLogsServiceRequest")()
    logs = request.resource_logs.add()
    for key, value in resource.items():
        _add(logs.resource.attributes, key, value)
    scoped = logs.scope_logs.add()
    scoped.scope.name, scoped.scope.version = _utf8(scope), _utf8(version)
    for line in lines:
        record = scoped.log_records.add(
            time_unix_nano=line.time_ns,
            observed_time_unix_nano=line.observed_ns,
            severity_number=line.severity,
            severity_text=_utf8(_NAMES[line.severity]),
            event_name=_utf8(line.event),
        )
        record.body.string_value = _utf8(line.body)
        for key, attribute in line.attributes.items():
            _add(record.attributes, key, attribute)
    return bytes(request.SerializeToString())


def _add(attributes: ProtoMessage, key: str, value: str | float) -> None:
    if value == "":
        return
    attribute = attributes.add(key=_utf8(key))
    if isinstance(value, str):
        attribute.value.string_value = _utf8(value)
    elif isinstance(value, int):
        attribute.value.int_value = value
    else:
        attribute.value.double_value = value


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
