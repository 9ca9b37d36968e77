package main

import (
	"sync"
	"time"

	"ebpfprof.test/harness"
)

// pingPong sends over unbuffered channels, of which each pair of goroutines has one. A unit is a
// send, which blocks one of the two.
func pingPong(p parameters) {
	var all sync.WaitGroup
	pairs := p.goroutines / 2
	for pair := 0; pair < pairs; pair++ {
		balls, sends := make(chan int), share(p.units, pair, pairs)
		all.Add(2)
		go below(p.frames, func() {
			defer all.Done()
			consume(balls)
		})
		go below(p.frames, func() {
			defer all.Done()
			produce(balls, sends, p.stacks)
		})
	}
	all.Wait()
}

//go:noinline
func produce(balls chan<- int, sends, stacks int) {
	if stacks == 1 {
		for i := 0; i < sends; i++ {
			balls <- i
		}
	} else {
		// Random ways: not every send blocks, but some send must block in each way.
		seed := uint32(1)
		for i := 0; i < sends; i++ {
			seed ^= seed << 13
			seed ^= seed >> 17
			seed ^= seed << 5
			step(balls, int(seed>>1)%stacks, bits)
		}
	}
	close(balls)
}

//go:noinline
func consume(balls <-chan int) {
	for range balls {
	}
}

// bits of a number below 16,384: each number is a stack of its own.
const bits = 14

func step(balls chan<- int, way, left int) int {
	if left == 0 {
		balls <- way
		return 1
	}
	if way>>(left-1)&1 == 0 {
		return goLeft(balls, way, left) + 1
	}
	return goRight(balls, way, left) + 1
}

//go:noinline
func goLeft(balls chan<- int, way, left int) int { return step(balls, way, left-1) + 1 }

//go:noinline
func goRight(balls chan<- int, way, left int) int { return step(balls, way, left-1) + 1 }

// paced sends over an unbuffered channel, and works before each send. On one processor, one of both
// goroutines waits for each. A unit is a send.
func paced(p parameters) {
	balls, work := make(chan int), time.Duration(p.work)
	go below(p.frames, func() {
		for i := 0; i < p.units; i++ {
			harness.Spin(work)
			balls <- i
		}
		close(balls)
	})
	consume(balls)
}

const (
	buffer    = 64
	producers = 2
	consumers = 2
)

// buffered sends over one buffered channel. A unit is a send, of which few block.
func buffered(p parameters) {
	var sending, receiving sync.WaitGroup
	balls := make(chan int, buffer)
	for i := 0; i < consumers; i++ {
		receiving.Add(1)
		go below(p.frames, func() {
			defer receiving.Done()
			consume(balls)
		})
	}
	for i := 0; i < producers; i++ {
		sends := share(p.units, i, producers)
		sending.Add(1)
		go below(p.frames, func() {
			defer sending.Done()
			for i := 0; i < sends; i++ {
				balls <- i
			}
		})
	}
	sending.Wait()
	close(balls)
	receiving.Wait()
}

const workers = 4

// workerPool has workers, which select between jobs and the end. A unit is a job.
func workerPool(p parameters) {
	var all sync.WaitGroup
	jobs, results, quit := make(chan int), make(chan int), make(chan struct{})
	for i := 0; i < workers; i++ {
		all.Add(1)
		go below(p.frames, func() {
			defer all.Done()
			workUntil(quit, jobs, results)
		})
	}
	go below(p.frames, func() {
		for i := 0; i < p.units; i++ {
			select {
			case jobs <- i:
			case <-quit:
				return
			}
		}
	})
	for i := 0; i < p.units; i++ {
		<-results
	}
	close(quit)
	all.Wait()
}

//go:noinline
func workUntil(quit <-chan struct{}, jobs <-chan int, results chan<- int) {
	for {
		select {
		case job := <-jobs:
			done := compute(job)
			select {
			case results <- done:
			case <-quit:
				return
			}
		case <-quit:
			return
		}
	}
}

// compute takes most of a microsecond.
//
//go:noinline
func compute(seed int) int {
	hash := uint32(seed)
	for i := uint32(0); i < 500; i++ {
		hash = (hash ^ i) * 16777619
	}
	return int(hash)
}
