"""The messages of OTLP profiles and logs, as far as we write and read them.

Source of the numbers: github.com/open-telemetry/opentelemetry-proto v1.11.0,
profiles/v1development, collector/profiles/v1development, logs/v1, collector/logs/v1, common/v1,
resource/v1.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from ebpfprof.export.proto_messages import Messages, ProtoMessage, ProtoPackage

_MESSAGES: Final[Messages] = {
    "ExportProfilesServiceRequest": {
        "resource_profiles": (1, "*ResourceProfiles"),
        "dictionary": (2, "ProfilesDictionary"),
    },
    "ExportProfilesServiceResponse": {"partial_success": (1, "ExportProfilesPartialSuccess")},
    "ExportProfilesPartialSuccess": {
        "rejected_profiles": (1, "int64"),
        "error_message": (2, "bytes"),
    },
    "ExportLogsServiceRequest": {"resource_logs": (1, "*ResourceLogs")},
    "ExportLogsServiceResponse": {"partial_success": (1, "ExportLogsPartialSuccess")},
    "ExportLogsPartialSuccess": {
        "rejected_log_records": (1, "int64"),
        "error_message": (2, "bytes"),
    },
    "ResourceLogs": {"resource": (1, "Resource"), "scope_logs": (2, "*ScopeLogs")},
    "ScopeLogs": {"scope": (1, "InstrumentationScope"), "log_records": (2, "*LogRecord")},
    "LogRecord": {
        "time_unix_nano": (1, "fixed64"),
        "severity_number": (2, "int32"),  # an enum
        "severity_text": (3, "bytes"),
        "body": (5, "AnyValue"),
        "attributes": (6, "*KeyValue"),
        "observed_time_unix_nano": (11, "fixed64"),
        "event_name": (12, "bytes"),
    },
    "ResourceProfiles": {"resource": (1, "Resource"), "scope_profiles": (2, "*ScopeProfiles")},
    "Resource": {"attributes": (1, "*KeyValue")},
    "ScopeProfiles": {"scope": (1, "InstrumentationScope"), "profiles": (2, "*Profile")},
    "InstrumentationScope": {"name": (1, "bytes"), "version": (2, "bytes")},
    "KeyValue": {"key": (1, "bytes"), "value": (2, "AnyValue")},
    # One field of it at a time.
    "AnyValue": {
        "string_value": (1, "?bytes"),
        "int_value": (3, "?int64"),
        "double_value": (4, "?double"),
        "array_value": (5, "ArrayValue"),
    },
    "ArrayValue": {"values": (1, "*AnyValue")},
    "ProfilesDictionary": {
        "mapping_table": (1, "*Mapping"),
        "location_table": (2, "*Location"),
        "function_table": (3, "*Function"),
        "link_table": (4, "*Link"),
        "string_table": (5, "*bytes"),
        "attribute_table": (6, "*KeyValueAndUnit"),
        "stack_table": (7, "*Stack"),
    },
    "Profile": {
        "sample_type": (1, "ValueType"),
        "samples": (2, "*Sample"),
        "time_unix_nano": (3, "fixed64"),
        "duration_nano": (4, "uint64"),
        "period_type": (5, "ValueType"),
        "period": (6, "int64"),
        "profile_id": (7, "bytes"),
        "attribute_indices": (11, "*int32"),
    },
    "ValueType": {"type_strindex": (1, "int32"), "unit_strindex": (2, "int32")},
    "Sample": {
        "stack_index": (1, "int32"),
        "attribute_indices": (2, "*int32"),
        "values": (4, "*int64"),
    },
    "Link": {"trace_id": (1, "bytes"), "span_id": (2, "bytes")},
    "Mapping": {
        "memory_start": (1, "uint64"),
        "memory_limit": (2, "uint64"),
        "file_offset": (3, "uint64"),
        "filename_strindex": (4, "int32"),
        "attribute_indices": (5, "*int32"),
    },
    "Stack": {"location_indices": (1, "*int32")},
    "Location": {
        "mapping_index": (1, "int32"),
        "address": (2, "uint64"),
        "lines": (3, "*Line"),
        "attribute_indices": (4, "*int32"),
    },
    "Line": {"function_index": (1, "int32"), "line": (2, "int64")},
    "Function": {
        "name_strindex": (1, "int32"),
        "system_name_strindex": (2, "int32"),
        "filename_strindex": (3, "int32"),
        "start_line": (4, "int64"),
    },
    "KeyValueAndUnit": {
        "key_strindex": (1, "int32"),
        "value": (2, "AnyValue"),
        "unit_strindex": (3, "int32"),
    },
}


def message_class(name: str) -> ProtoMessage:
    """The class of the message of that name."""
    return _package().message_class(name)


@cache
def _package() -> ProtoPackage:
    return ProtoPackage("opentelemetry.proto", _MESSAGES)
