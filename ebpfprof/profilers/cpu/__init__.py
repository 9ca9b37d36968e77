"""The CPU profile: stacks, sampled on all processors."""
