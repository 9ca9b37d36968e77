"""Which processes there are, what they run, and in which container."""
