"""The heap and allocs profiles: sampled allocations, and which of them are still in use."""
