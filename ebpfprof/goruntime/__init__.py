"""A process as a Go program: its tables, its Go code, its plugins, its settings."""
