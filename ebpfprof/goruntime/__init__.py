"""A process seen as a Go program: its tables, its goroutines, their labels."""
