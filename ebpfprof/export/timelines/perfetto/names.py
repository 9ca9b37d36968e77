"""Names, frames and stacks in a trace of Perfetto: written once, each with a number."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ebpfprof.export.timelines.perfetto.schema import message_class

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ebpfprof.export.proto_messages import ProtoMessage
    from ebpfprof.timeline.model import StackCall, Timeline


class InternedNames:
    """Names, frames and stacks, each with a number; those not written yet go into a packet."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._ids: dict[str, dict[Hashable, int]] = defaultdict(dict)
        self._stacks: dict[int, int] = {}
        self._new = message_class("InternedData")()

    def name(self, text: str) -> int:
        """The number of an event's name."""
        iid, is_new = self._id("name", text)
        if is_new:
            self._new.event_names.add(iid=iid, name=text.encode(errors="replace"))
        return iid

    def stack(self, key: int) -> int:
        """The number of a stack; 0 if there is no such stack."""
        if not key:
            return 0
        if key not in self._stacks:
            calls = self._timeline.stacks.get(key, ())
            self._stacks[key] = self._callstack(calls) if calls else 0
        return self._stacks[key]

    def take_new(self, packet: ProtoMessage) -> None:
        """Move what was not written yet into a packet."""
        if self._new.ByteSize():
            packet.interned_data.CopyFrom(self._new)
            self._new.Clear()

    def _callstack(self, calls: tuple[StackCall, ...]) -> int:
        frames = [self._frame(call) for call in reversed(calls)]  # outermost first
        iid, is_new = self._id("stack", tuple(frames))
        if is_new:
            self._new.callstacks.add(iid=iid, frame_ids=frames)
        return iid

    def _frame(self, call: StackCall) -> int:
        iid, is_new = self._id("frame", call)
        if is_new:
            self._new.frames.add(
                iid=iid,
                function_name_id=self._text("function", call.frame.function),
                rel_pc=call.address,
                source_path_iid=self._text("path", call.frame.file),
                line_number=max(0, call.frame.line),
            )
        return iid

    def _text(self, table: str, text: str) -> int:
        iid, is_new = self._id(table, text)
        if is_new:
            to = self._new.function_names if table == "function" else self._new.source_paths
            to.add(iid=iid, str=text.encode(errors="replace"))
        return iid

    def _id(self, table: str, thing: Hashable) -> tuple[int, bool]:
        ids = self._ids[table]
        if thing in ids:
            return ids[thing], False
        ids[thing] = len(ids) + 1
        return ids[thing], True
