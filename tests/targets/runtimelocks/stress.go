//go:build go1.25

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// contended counts the releases of the last lock of the stress with sleeping threads.
var contended = map[string]int{"holdLong": 0, "holdShort": 0}

// waitedNs is how long all threads took to get that lock, which protects both.
var waitedNs int64

// runStress contends for locks of channels, of semaphores and of the scheduler, and for one of
// its own, held for a long and for a short time. How often it waits is chance.
func runStress(n int) {
	if n == 0 {
		return
	}
	runtime.GOMAXPROCS(4)
	channel := make(chan int, 1)
	var mu sync.Mutex
	together(8, func(i int) {
		for range n / 8 {
			if i%2 == 0 {
				channel <- i
			} else {
				<-channel
			}
			mu.Lock()
			mu.Unlock()
			if i == 7 {
				runtime.Gosched()
			}
		}
	})
	var own mutex
	var enough atomic.Bool
	together(4, func(i int) {
		for !enough.Load() {
			if i == 0 {
				enough.Store(holdLong(&own) >= n/100)
			} else {
				holdShort(&own)
			}
			spin(200)
		}
	})
}

// timedLock adds up how long it took to get the lock, by sleeping or otherwise.
func timedLock(mu *mutex) {
	start := nanotime()
	lock(mu)
	waitedNs += nanotime() - start
}

//go:noinline
func holdLong(mu *mutex) int {
	timedLock(mu)
	spin(10_000)
	countSleepers(mu, "holdLong")
	found := contended["holdLong"]
	unlock(mu)
	return found
}

//go:noinline
func holdShort(mu *mutex) {
	timedLock(mu)
	spin(300)
	countSleepers(mu, "holdShort")
	unlock(mu)
}

// countSleepers counts, under the lock, a release for which a thread sleeps.
func countSleepers(mu *mutex, function string) {
	if atomic.LoadUintptr(&mu.key)&^mutexFlags != 0 {
		contended[function]++
	}
}

func spin(ns int64) {
	for end := nanotime() + ns; nanotime() < end; {
	}
}

func together(count int, work func(i int)) {
	var all sync.WaitGroup
	for i := range count {
		all.Add(1)
		go func() {
			defer all.Done()
			work(i)
		}()
	}
	all.Wait()
}
