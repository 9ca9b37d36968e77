//go:build go1.18

package main

//go:noinline
func generic[T any](ch chan T) T { return <-ch }
