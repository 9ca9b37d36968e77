"""Publishes a message as an OpenTelemetry SDK does (OTEP 4719), or wrongly.

    python publisher.py MESSAGE-IN-HEX

For each line of its input, "right" or a fault, it writes the header again and prints "published".
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import time

SIZE = 1 << 16


def main() -> None:
    message = bytes.fromhex(sys.argv[1])
    fd = os.memfd_create("OTEL_CTX")
    os.ftruncate(fd, SIZE)
    mapping = mmap.mmap(fd, SIZE, flags=mmap.MAP_PRIVATE)
    os.close(fd)
    mapping[32 : 32 + len(message)] = message
    header: dict[str, object] = {
        "signature": b"OTEL_CTX",
        "version": 2,
        "size": len(message),
        "published": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        "payload": ctypes.addressof(ctypes.c_char.from_buffer(mapping)) + 32,
    }
    faults: dict[str, dict[str, object]] = {
        "right": {},
        "signature": {"signature": b"otel_ctx"},
        "version": {"version": 3},
        "unpublished": {"published": 0},
        "huge": {"size": 1 << 31},
        "nowhere": {"payload": 0x10},
        "cut": {"size": len(message) - 1},
    }
    for line in sys.stdin:
        mapping[:32] = struct.pack("<8sIIQQ", *(header | faults[line.strip()]).values())
        print("published", flush=True)


main()
