"""Profiles that are changed as protobuf messages, valid or not."""

from __future__ import annotations

from collections.abc import Callable

from ebpfprof.export.pprof.schema import profile_class
from ebpfprof.export.proto_messages import ProtoMessage
from tests.unit.export.small_profile import GOLDEN


def changed(change: Callable[[ProtoMessage], object]) -> bytes:
    """GOLDEN after a change of its message."""
    message = profile_class().FromString(GOLDEN)
    change(message)
    return bytes(message.SerializeToString())
