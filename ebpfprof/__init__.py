"""Out-of-process eBPF profiler for Go programs."""

__version__ = "0.1.0"
