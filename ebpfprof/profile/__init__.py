"""The profile model. It knows nothing of BPF."""
