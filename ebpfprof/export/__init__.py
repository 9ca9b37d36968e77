"""Output formats, one module each. They use the profile model and are independent of BPF."""
