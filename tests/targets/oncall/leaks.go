package main

import (
	"sync/atomic"

	"ebpfprof.test/harness"
)

var (
	turns   atomic.Int64
	jobs    = make(chan int)
	workers int
	steady  bool
)

// leak starts goroutines that wait for an answer that nobody sends.
func leak(count int) {
	var ids []int64
	for i := 0; i < count; i++ {
		ids = append(ids, begin("leaky", func() { leaky(make(chan int)) }).ID)
	}
	for _, id := range ids {
		await(id, "chan receive")
	}
}

//go:noinline
func leaky(answer chan int) { <-answer }

// turn gives all workers a job, after which they wait again, and adds two. At the first time it
// starts goroutines that wait for ever, but are not more and more.
func turn() {
	if !steady {
		for i := 0; i < 5; i++ {
			begin("wait", wait)
		}
		steady = true
	}
	for i := 0; i < 2; i++ {
		begin("work", work)
		workers++
	}
	turns.Store(0)
	for i := 0; i < workers; i++ {
		jobs <- i
	}
	harness.Poll(func() bool { return turns.Load() == int64(workers) })
	await(reports["work"].ID, "chan receive")
}

//go:noinline
func wait() { <-never }

//go:noinline
func work() {
	for range jobs {
		turns.Add(1)
	}
}
