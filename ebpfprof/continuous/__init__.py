"""Continuous recording: which processes are recorded, for how long, and the history of it."""
