"""x86-64 machine code: instructions and calls."""
