//go:build go1.23

package main

import (
	"iter"
	"time"

	"ebpfprof.test/harness"
)

func init() {
	works["coroutines"] = coroutines
}

// coroutines has goroutines that hand over to each other without the scheduler.
func coroutines() {
	go pull()
	go pull()
}

func pull() {
	for {
		next, stop := iter.Pull(numbers)
		for i := 0; i < 20; i++ {
			next()
			harness.Spin(some(10 * time.Microsecond))
		}
		stop()
		time.Sleep(some(time.Millisecond))
	}
}

func numbers(yield func(int) bool) {
	for i := 0; ; i++ {
		harness.Spin(some(10 * time.Microsecond))
		if !yield(i) {
			return
		}
	}
}
