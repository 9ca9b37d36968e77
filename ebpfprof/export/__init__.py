"""Output formats, one module each. They know the profile model and nothing of BPF."""
