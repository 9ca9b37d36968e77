"""What the kernel does for us: probes, and the processes that hold them."""
