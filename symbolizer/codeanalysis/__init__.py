"""What only the machine code of a Go program tells: where to put probes, where variables lie."""
