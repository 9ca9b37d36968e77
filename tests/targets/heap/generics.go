//go:build go1.18

package main

type generic[T any] struct{}

var genericShape = generic[string]{}

//go:noinline
func (generic[T]) make(round int) { keep(round, new([9]T)) }
