"""This process itself: its signals, children and memory."""
