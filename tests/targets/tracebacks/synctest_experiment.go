//go:build goexperiment.synctest && !go1.25

package main

import (
	"testing/synctest"
	"time"

	"ebpfprof.test/harness"
)

// startBubble has goroutines wait in a bubble of the experiment synctest of Go 1.24, one of them for
// something outside.
func startBubble() {
	begun := make(chan bool, 2)
	go synctest.Run(func() {
		inside := make(chan int)
		go func() { begun <- true; <-inside }()
		go func() { begun <- true; <-never }()
		time.Sleep(time.Hour)
	})
	harness.Poll(func() bool { return len(begun) == 2 })
}
