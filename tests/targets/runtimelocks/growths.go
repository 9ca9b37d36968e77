//go:build go1.25

package main

import "sync/atomic"

// runGrowths makes two threads sleep for the lock of large stacks: one that just locks it, and one
// whose goroutine's stack grows. Which one gets it first and makes the other wait is chance.
func runGrowths(times int) {
	for range times {
		growOnce()
	}
	if times > 0 {
		planned["releaseStacks"] = times
	}
}

func growOnce() {
	var both crew
	both.start(2, func(i int) {
		if i == 0 {
			lockStacks()
		} else {
			grow()
		}
	})
	lock(&stackLarge)
	both.letGo(0)
	head := awaitSleeper(&stackLarge, 0)
	both.letGo(1)
	awaitSleeper(&stackLarge, head)
	usleep(holdMicros)
	releaseStacks()
	both.wait()
}

//go:noinline
func releaseStacks() { unlock(&stackLarge) }

//go:noinline
func lockStacks() {
	lock(&stackLarge)
	usleep(holdMicros)
	unlock(&stackLarge)
}

//go:noinline
func grow() byte {
	var large [128 << 10]byte
	return large[sink.Add(1)]
}

var sink atomic.Int32
