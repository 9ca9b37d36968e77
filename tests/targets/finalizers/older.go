//go:build !go1.25

package main

// addCleanup does nothing: before Go 1.25 cleanups wait for the finalizer to return.
func addCleanup() {}
