"""What takes the windows: a queue for each sink, and a thread that empties it."""
