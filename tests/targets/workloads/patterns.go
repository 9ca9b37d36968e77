package main

import (
	"runtime"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

// What is hard for a profiler that records one stop in eight of a goroutine.

const (
	gap    = 20 * time.Microsecond
	yields = 20
)

// turns lets each of some goroutines wait at one place, then at another one, and so on. A unit is a
// wait. Who wakes them sleeps in between, so that they always wait.
func turns(p parameters) {
	var all sync.WaitGroup
	pairs := p.goroutines / 2
	for pair := 0; pair < pairs; pair++ {
		first, second, waits := make(chan int), make(chan int), share(p.units, pair, pairs)
		all.Add(2)
		go below(p.frames, func() {
			defer all.Done()
			for i := 0; i < waits; i += 2 {
				waitFirst(first)
				waitSecond(second)
			}
		})
		go below(p.frames, func() {
			defer all.Done()
			for i := 0; i < waits; i += 2 {
				time.Sleep(gap)
				first <- i
				time.Sleep(gap)
				second <- i
			}
		})
	}
	all.Wait()
}

//go:noinline
func waitFirst(from <-chan int) { <-from }

//go:noinline
func waitSecond(from <-chan int) { <-from }

// oneShots has goroutines that wait once and end. A unit is one of them.
func oneShots(p parameters) {
	const together = 8
	for left := p.units; left > 0; left -= together {
		var all sync.WaitGroup
		open := make(chan int)
		for i := 0; i < together; i++ {
			all.Add(1)
			go below(p.frames, func() {
				defer all.Done()
				waitFirst(open)
			})
		}
		harness.Spin(gap)
		close(open)
		all.Wait()
	}
}

// systemCalls has goroutines that do some system calls between two waits. A unit is a wait.
func systemCalls(p parameters) {
	handOver(p, func() {
		var stat syscall.Stat_t
		for i := 0; i < 3; i++ {
			harness.Check(syscall.Stat("/", &stat))
		}
	})
}

// yielding has goroutines that yield much more often than they wait. A unit is a wait.
func yielding(p parameters) {
	handOver(p, func() {
		for i := 0; i < yields; i++ {
			runtime.Gosched()
		}
	})
}

// handOver has pairs of goroutines, of which one sends to the other one, and work between two waits.
func handOver(p parameters, work func()) {
	var all sync.WaitGroup
	pairs := p.goroutines / 2
	for pair := 0; pair < pairs; pair++ {
		balls, waits := make(chan int), share(p.units, pair, pairs)
		all.Add(2)
		go below(p.frames, func() {
			defer all.Done()
			for range balls {
				work()
			}
		})
		go below(p.frames, func() {
			defer all.Done()
			for i := 0; i < waits; i++ {
				harness.Spin(gap)
				work()
				balls <- i
			}
			close(balls)
		})
	}
	all.Wait()
}

// bursts contends for a lock ten times a second, and does nothing in between. A unit is a Lock.
func bursts(p parameters) {
	const count = 10
	for i := 0; i < count; i++ {
		begin := time.Now()
		burst := p
		burst.units = share(p.units, i, count)
		contendedMutex(burst)
		time.Sleep(3 * time.Since(begin))
	}
}
