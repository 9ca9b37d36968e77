"""A process: its identity, memory, mappings and files."""
