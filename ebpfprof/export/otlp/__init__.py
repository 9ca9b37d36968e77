"""OTLP profiles, a signal of OpenTelemetry that is still in development."""

from ebpfprof.export.otlp.writer import ProfileSource, encode

__all__ = ["ProfileSource", "encode"]
