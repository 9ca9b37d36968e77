"""The execution trace: what the scheduler does with goroutines, and the kernel with threads."""
