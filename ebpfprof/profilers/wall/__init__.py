"""The wall profile: where goroutines spend all their time, from looks at random times."""
