"""The profile model, independent of BPF."""
