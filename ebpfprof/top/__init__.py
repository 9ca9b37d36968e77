"""`ebpfprof top`: the live table in the terminal."""
