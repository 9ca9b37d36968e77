"""Sinks: where profiles go. Each has a queue, and a thread that empties it."""
