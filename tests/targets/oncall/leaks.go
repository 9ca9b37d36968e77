package main

import (
	"io"
	"runtime/pprof"
	"sync/atomic"

	"ebpfprof.test/harness"
)

var (
	turns   atomic.Int64
	jobs    = make(chan int)
	workers int
	steady  bool
	heard   atomic.Int64
	busy    []chan int
	letters = make(chan int)
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

// mixed adds goroutines that wait for ever where three others wait, which it wakes: they wait again.
func mixed(count int) {
	reports = map[string]*facts{}
	for _, name := range []string{"first", "second", "third"}[len(busy):] {
		busy = append(busy, make(chan int))
		begin(name, listener(busy[len(busy)-1]))
	}
	var ids []int64
	for i := 0; i < count; i++ {
		ids = append(ids, begin("leaky", listener(make(chan int))).ID)
	}
	for _, id := range ids {
		await(id, "chan receive")
	}
	delete(reports, "leaky")
	heard.Store(0)
	for _, each := range busy {
		each <- 1
	}
	harness.Poll(func() bool { return heard.Load() == int64(len(busy)) })
}

// listener has one line for all goroutines of mixed.
func listener(words chan int) func() { return func() { listen(words) } }

//go:noinline
func listen(words chan int) {
	for range words {
		heard.Add(1)
	}
}

// send starts goroutines that send what nobody receives before receive is asked for.
func send(count int) {
	for i := 0; i < count; i++ {
		await(begin("post", post).ID, "chan send")
	}
}

//go:noinline
func post() { letters <- 1 }

//go:noinline
func wait() { <-never }

// work waits for its next job only when all have had one: each of them moves at each turn.
//
//go:noinline
func work() {
	for range jobs {
		mine := turns.Add(1)
		harness.Poll(func() bool { return turns.Load() >= int64(workers) || turns.Load() < mine })
	}
}

// stuck starts goroutines that can never go on.
func stuck() {
	var null chan int
	for name, wait := range map[string]func(){
		"chan receive (nil chan)": func() { <-null },
		"chan send (nil chan)":    func() { null <- 1 },
		"select (no cases)":       func() { select {} },
	} {
		await(begin(name, wait).ID, name)
	}
}

// profile has the runtime look for leaked goroutines, where it can (Go 1.27 on).
func profile() {
	if leaks := pprof.Lookup("goroutineleak"); leaks != nil {
		harness.Check(leaks.WriteTo(io.Discard, 0))
	}
}
