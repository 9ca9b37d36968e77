"""The terminal, text for people, and output files."""
