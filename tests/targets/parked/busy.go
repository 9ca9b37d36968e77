package main

import (
	"runtime"
	"sync"

	"ebpfprof.test/harness"
)

// startBusy starts goroutines that never stay parked for long. Their stacks are, from busyLoop
// inwards, levels of busyLeft only or of busyRight only, in turns and at changing depths, and
// then the operation. From time to time they grow, and the garbage collector, which runs without
// a pause, shrinks them.
func startBusy(count int) {
	if count == 0 {
		return
	}
	for i := 0; i < count; i += 4 {
		values, others := make(chan int), make(chan int)
		lock := new(sync.Mutex)
		locked := func() {
			lock.Lock()
			runtime.Gosched()
			lock.Unlock()
		}
		go busyLoop(i, func() { values <- 1; locked() })
		go busyLoop(i+1, func() { <-values; locked() })
		go busyLoop(i+2, func() { others <- 1; locked() })
		go busyLoop(i+3, func() {
			select {
			case <-others:
			case <-empty:
			}
			locked()
		})
	}
	go func() {
		for {
			runtime.GC()
		}
	}()
}

//go:noinline
func busyLoop(seed int, operate func()) {
	for round := seed; ; round++ {
		levels := 1 + round*7%29
		if round%2 == 0 {
			busyLeft(levels, operate)
		} else {
			busyRight(levels, operate)
		}
		if round%16 == 0 {
			harness.GrowStack(200)
		}
	}
}

//go:noinline
func busyLeft(levels int, operate func()) int {
	if levels == 0 {
		operate()
		return 0
	}
	return busyLeft(levels-1, operate) + 1
}

//go:noinline
func busyRight(levels int, operate func()) int {
	if levels == 0 {
		operate()
		return 0
	}
	return busyRight(levels-1, operate) + 1
}
