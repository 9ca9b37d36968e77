"""The messages of a trace of Perfetto, as far as we write them."""

from __future__ import annotations

from functools import cache
from typing import Final

from ebpfprof.export.proto_messages import Messages, ProtoMessage, ProtoPackage

# Source of the numbers: github.com/google/perfetto, protos/perfetto/trace.
_MESSAGES: Final[Messages] = {
    "Trace": {"packet": (1, "*TracePacket")},
    "TracePacket": {
        "clock_snapshot": (6, "ClockSnapshot"),
        "timestamp": (8, "uint64"),
        "trusted_packet_sequence_id": (10, "uint32"),
        "track_event": (11, "TrackEvent"),
        "interned_data": (12, "InternedData"),
        "sequence_flags": (13, "uint32"),
        "trace_packet_defaults": (59, "TracePacketDefaults"),
        "track_descriptor": (60, "TrackDescriptor"),
    },
    "TracePacketDefaults": {"timestamp_clock_id": (58, "uint32")},
    "ClockSnapshot": {"clocks": (1, "*Clock"), "primary_trace_clock": (2, "int32")},
    "Clock": {"clock_id": (1, "uint32"), "timestamp": (2, "uint64")},
    "TrackDescriptor": {
        "uuid": (1, "uint64"),
        "name": (2, "bytes"),
        "process": (3, "ProcessDescriptor"),
        "thread": (4, "ThreadDescriptor"),
        "parent_uuid": (5, "uint64"),
        "counter": (8, "CounterDescriptor"),
        "child_ordering": (11, "int32"),
        "sibling_order_rank": (12, "int32"),
    },
    "ProcessDescriptor": {"pid": (1, "int32"), "process_name": (6, "bytes")},
    "ThreadDescriptor": {"pid": (1, "int32"), "tid": (2, "int32"), "thread_name": (5, "bytes")},
    "CounterDescriptor": {"unit_name": (6, "bytes")},
    "TrackEvent": {
        "debug_annotations": (4, "*DebugAnnotation"),
        "type": (9, "int32"),
        "name_iid": (10, "uint64"),
        "track_uuid": (11, "uint64"),
        "counter_value": (30, "int64"),
        "flow_ids": (47, "*fixed64"),
        "terminating_flow_ids": (48, "*fixed64"),
        "callstack_iid": (56, "uint64"),
    },
    "DebugAnnotation": {
        "uint_value": (3, "uint64"),
        "string_value": (6, "bytes"),
        "name": (10, "bytes"),
    },
    "InternedData": {
        "event_names": (2, "*EventName"),
        "function_names": (5, "*InternedString"),
        "frames": (6, "*Frame"),
        "callstacks": (7, "*Callstack"),
        "source_paths": (18, "*InternedString"),
    },
    "EventName": {"iid": (1, "uint64"), "name": (2, "bytes")},
    "InternedString": {"iid": (1, "uint64"), "str": (2, "bytes")},
    "Frame": {
        "iid": (1, "uint64"),
        "function_name_id": (2, "uint64"),
        "rel_pc": (4, "uint64"),
        "source_path_iid": (5, "uint64"),
        "line_number": (6, "uint32"),
    },
    "Callstack": {"iid": (1, "uint64"), "frame_ids": (2, "*uint64")},
}


def message_class(name: str) -> ProtoMessage:
    """The class of a message."""
    return _package().message_class(name)


@cache
def _package() -> ProtoPackage:
    return ProtoPackage("ebpfprof.perfetto", _MESSAGES, syntax="proto2")
