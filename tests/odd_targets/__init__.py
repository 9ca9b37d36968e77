"""Targets that people have and that are unlike most."""
