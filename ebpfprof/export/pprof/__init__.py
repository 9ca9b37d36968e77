"""The pprof format: profile.proto in gzip, as Go's runtime/pprof writes it."""

from ebpfprof.export.pprof.reader import decode
from ebpfprof.export.pprof.wire import MAX_DECODED_BYTES
from ebpfprof.export.pprof.writer import compressed, encode, message

__all__ = ["MAX_DECODED_BYTES", "compressed", "decode", "encode", "message"]
