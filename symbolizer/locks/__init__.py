"""Names and types of the locks of a Go program."""
