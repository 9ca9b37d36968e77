"""Facts that only a Go program's machine code has: where probes go, where variables are."""
