"""All goroutines and threads at one moment: states, stacks, labels, and Go's text of them."""
