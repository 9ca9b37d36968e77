package main

import (
	"runtime"
	"sync/atomic"
	"time"
)

// startCollecting makes the collector scan, shrink and thereby move the stacks of parked
// goroutines without a pause, until the function that it returns has been called.
func startCollecting() (stop func()) {
	var stopping, stopped atomic.Bool
	go func() {
		for !stopping.Load() {
			runtime.GC()
		}
		stopped.Store(true)
	}()
	return func() {
		stopping.Store(true)
		for !stopped.Load() {
			time.Sleep(time.Millisecond)
		}
	}
}
