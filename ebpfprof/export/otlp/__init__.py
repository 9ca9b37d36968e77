"""OTLP profiles, a signal of OpenTelemetry that is still in development, and OTLP logs."""

from ebpfprof.export.otlp.logs import ERROR, INFO, WARN, LogLine, encode_logs
from ebpfprof.export.otlp.writer import ProfileSource, encode

__all__ = ["ERROR", "INFO", "WARN", "LogLine", "ProfileSource", "encode", "encode_logs"]
