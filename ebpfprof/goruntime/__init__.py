"""A process as a Go program: its tables, its goroutines, their labels."""
