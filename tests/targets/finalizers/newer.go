//go:build go1.25

package main

import "runtime"

//go:noinline
func cleanUp(int) { hold() }

func addCleanup() {
	runtime.AddCleanup(&thing{}, cleanUp, 0)
	awaitBegun(2)
}
