package main

import (
	"sync"
	"time"

	"ebpfprof.test/harness"
)

const (
	users = 10
	held  = 2 * time.Millisecond
	burst = 400
)

// several starts so many goroutines, each with a clock.
func several(count int, work func(*clock)) {
	for i := 0; i < count; i++ {
		go func() { work(newClock()) }()
	}
}

// lockAndSleep has goroutines that take one lock in turns, each for two milliseconds.
func lockAndSleep() {
	var shared sync.Mutex
	several(users, func(c *clock) {
		for {
			c.wait(shared.Lock)
			c.wait(func() { time.Sleep(held) })
			shared.Unlock()
		}
	})
}

// passOn has goroutines that send in bursts, so often that g.trackingSeq, which counts modulo 256,
// has any value at a sample.
func passOn() {
	for i := 0; i < 2; i++ {
		numbers := make(chan int)
		several(1, func(c *clock) {
			for {
				for i := 0; i < burst; i++ {
					c.wait(func() { numbers <- i })
				}
				c.wait(func() { time.Sleep(held) })
			}
		})
		several(1, func(c *clock) {
			for {
				c.wait(func() { <-numbers })
			}
		})
	}
}

// choose has workers that select between jobs and an end that never comes.
func choose() {
	jobs, end := make(chan int), make(chan bool)
	several(4, func(c *clock) {
		for {
			c.wait(func() {
				select {
				case <-jobs:
				case <-end:
				}
			})
			harness.Spin(50 * time.Microsecond)
		}
	})
	several(1, func(c *clock) {
		for {
			for i := 0; i < 8; i++ {
				c.wait(func() { jobs <- i })
			}
			c.wait(func() { time.Sleep(held) })
		}
	})
}

// readAndWrite has readers and writers of one lock.
func readAndWrite() {
	var shared sync.RWMutex
	several(6, func(c *clock) {
		for {
			c.wait(shared.RLock)
			c.wait(func() { time.Sleep(held / 2) })
			shared.RUnlock()
		}
	})
	several(2, func(c *clock) {
		for {
			c.wait(shared.Lock)
			c.wait(func() { time.Sleep(held) })
			shared.Unlock()
			c.wait(func() { time.Sleep(held) })
		}
	})
}

// awaitNews has goroutines that wait for a condition, and one that signals it.
func awaitNews() {
	var shared sync.Mutex
	news := sync.NewCond(&shared)
	edition := 0
	several(5, func(c *clock) {
		for read := 0; ; {
			c.wait(shared.Lock)
			for edition == read {
				c.wait(news.Wait)
			}
			read = edition
			shared.Unlock()
		}
	})
	several(1, func(c *clock) {
		for {
			c.wait(func() { time.Sleep(held) })
			c.wait(shared.Lock)
			edition++
			news.Broadcast()
			shared.Unlock()
		}
	})
}
