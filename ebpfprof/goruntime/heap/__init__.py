"""What is on the heap of a Go program: statistics, objects by type, sampled allocations."""
