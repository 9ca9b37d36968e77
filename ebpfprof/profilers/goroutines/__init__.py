"""The goroutine profile: where all goroutines are, read from memory."""
