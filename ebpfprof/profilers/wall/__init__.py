"""The wall profile: where goroutines spend all their time, from samples at random times."""
