"""The resource attributes that an OpenTelemetry SDK publishes for readers outside its process.

OTEP 4719: a mapping named OTEL_CTX begins with a header that points to a protobuf message. A writer
sets the time in the header to 0 while it changes the rest. Any process can have such a mapping,
with any content.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from ebpfprof.agent.identity.attributes import NoAttributesError, of_process_context
from ebpfprof.kernel.remote_memory import peek
from ebpfprof.system.first_thread import reading_pid

MAX_MAPS_BYTES: Final = 8 << 20
MAX_MAPPINGS: Final = 4
MAX_PAYLOAD_BYTES: Final = 64 << 10
_TRIES: Final = 3
_SIGNATURE: Final = b"OTEL_CTX"
_VERSION: Final = 2
_HEADER: Final = struct.Struct("<8sIIQQ")
"""Signature, version, message size, time (CLOCK_BOOTTIME; 0 during writes), message address."""
_LINE: Final = re.compile(
    rb"^([0-9a-f]{1,16})-[0-9a-f]{1,16} r\S{3} .*? "
    rb"(?:\[anon_shmem:OTEL_CTX\]|\[anon:OTEL_CTX\]|/memfd:OTEL_CTX(?: \(deleted\))?)$",
    re.MULTILINE,
)


def published_attributes(pid: int) -> dict[str, str]:
    """The attributes that the process publishes; {} without any, or if they are malformed."""
    try:
        with open(f"/proc/{reading_pid(pid)}/maps", "rb") as file:
            maps = file.read(MAX_MAPS_BYTES)
    except OSError:
        return {}
    for address in addresses(maps)[:MAX_MAPPINGS]:
        if (message := _message(pid, address)) is not None:
            try:
                return of_process_context(message)
            except NoAttributesError:
                continue
    return {}


def addresses(maps: bytes) -> list[int]:
    """The addresses of the mappings of that name, from the text of a /proc/PID/maps."""
    if b":OTEL_CTX" not in maps:
        return []
    return [int(match[1], 16) for match in _LINE.finditer(maps)]


def _message(pid: int, address: int) -> bytes | None:
    """The message of the header at this address; None without a complete one."""
    for _ in range(_TRIES):
        header = peek(pid, address, _HEADER.size)
        if len(header) < _HEADER.size:
            return None
        signature, version, size, published_ns, payload = _HEADER.unpack(header)
        if (signature, version) != (_SIGNATURE, _VERSION) or size > MAX_PAYLOAD_BYTES:
            return None
        if not published_ns or payload >> 63:
            continue
        message = peek(pid, payload, size) if size else b""
        if len(message) == size and peek(pid, address, _HEADER.size) == header:
            return message
    return None
