"""The format of Perfetto (ui.perfetto.dev)."""

from ebpfprof.export.timelines.perfetto.writer import encode

__all__ = ["encode"]
