//go:build !go1.21

package main

import "runtime"

// symbol returns the name that runtime/pprof writes for a frame; there are no start lines yet.
func symbol(frame *runtime.Frame) (string, int) {
	return frame.Function, 0
}
