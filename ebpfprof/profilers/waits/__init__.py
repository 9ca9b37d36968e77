"""The block and mutex profiles: where goroutines park, wake and release locks."""
