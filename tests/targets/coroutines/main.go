//go:build go1.23

// Coroutines has goroutines that go on every millisecond by coroutines (iter.Pull): Go counts in no
// field of runtime.g how often they do. In sleepers the one that yields sleeps, so main.pull is
// in its coroutine at nearly every moment; in pullers the one that pulls sleeps. One goroutine
// stands still.
//
// Protocol: it prints "ready PID" once each has gone on ten times, also since a garbage collection,
// which notes since when goroutines wait. It ends when its input closes.
package main

import (
	"iter"
	"runtime"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

var sleepers, pullers atomic.Int64

func main() {
	go pull(sleep, &sleepers, 0)
	go pull(yield, &pullers, time.Millisecond)
	go stand()
	await(10)
	runtime.GC()
	await(10)
	harness.Ready()
	harness.AwaitEnd()
}

func await(more int64) {
	for _, each := range []*atomic.Int64{&sleepers, &pullers} {
		for until := each.Load() + more; each.Load() < until; {
			time.Sleep(time.Millisecond)
		}
	}
}

func stand() { select {} }

//go:noinline
func pull(numbers iter.Seq[int], count *atomic.Int64, pause time.Duration) {
	next, stop := iter.Pull(numbers)
	defer stop()
	for {
		next()
		count.Add(1)
		if pause > 0 {
			time.Sleep(pause)
		}
	}
}

func sleep(yield func(int) bool) {
	for i := 0; yield(i); i++ {
		time.Sleep(time.Millisecond)
	}
}

func yield(yield func(int) bool) {
	for i := 0; yield(i); i++ {
	}
}
