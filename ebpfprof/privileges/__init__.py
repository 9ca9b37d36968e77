"""Which rights ebpfprof needs and has."""
