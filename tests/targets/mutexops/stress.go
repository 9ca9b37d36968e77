package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

// runStress does n operations of each contended kind on two processors, all kinds in turn. How
// often they wait is chance; only Go's own profile of the run has the numbers.
func runStress(n int) {
	runtime.GOMAXPROCS(2)
	stressMutex(n)
	stressRWMutex(n)
	stressStarving(n / 20)
	stressSites(n)
	stressPaths(n)
	stressMany(n)
	stressCond(n)
	stressFleeting(n / 8)
}

// yieldTo lets the other goroutines run every eighth time, so that they wait for the lock that
// this one holds.
func yieldTo(i int) {
	if i%8 == 0 {
		runtime.Gosched()
	}
}

// stressMutex: the unlocking goroutine works on, so that others overtake the woken goroutine.
func stressMutex(n int) {
	var mu sync.Mutex
	total := 0
	harness.Together(8, func() {
		for i := 0; i < n/8; i++ {
			mu.Lock()
			total++
			harness.Spin(time.Duration(i%4) * time.Microsecond)
			yieldTo(i)
			mu.Unlock()
			harness.Spin(time.Duration(i%7) * time.Microsecond)
		}
	})
	harness.Assert(total == n/8*8)
}

func stressRWMutex(n int) {
	var mu sync.RWMutex
	var number atomic.Int64
	total, copyOfTotal := 0, 0
	harness.Together(6, func() {
		writes := number.Add(1) <= 2
		for i := 0; i < n/6; i++ {
			if writes {
				mu.Lock()
				total++
				harness.Spin(time.Duration(i%3) * time.Microsecond)
				yieldTo(i)
				copyOfTotal++
				mu.Unlock()
				harness.Spin(2 * time.Microsecond)
			} else {
				mu.RLock()
				harness.Assert(total == copyOfTotal)
				yieldTo(i)
				mu.RUnlock()
			}
		}
	})
	harness.Assert(total == n/6*2)
}

// stressStarving: waits of a millisecond and more, so that Unlock hands the lock over.
func stressStarving(n int) {
	var mu sync.Mutex
	total := 0
	harness.Together(8, func() {
		for i := 0; i < n/8; i++ {
			mu.Lock()
			total++
			harness.Spin(300 * time.Microsecond)
			mu.Unlock()
		}
	})
	harness.Assert(total == n/8*8)
}

// stressSites: one lock, with releases in many places.
func stressSites(n int) {
	a := &account{}
	var l sync.Locker = a
	unlock := a.Unlock
	var started, ended atomic.Int64
	harness.Together(6, func() {
		for i := 0; i < n/6; i++ {
			a.Lock()
			yieldTo(i)
			switch i % 6 {
			case 0:
				a.finish()
			case 1:
				func() { defer a.Unlock() }()
			case 2:
				release(l)
			case 3:
				call(unlock)
			case 4:
				unlockAll(l)
			case 5:
				started.Add(1)
				go func() {
					a.Unlock()
					ended.Add(1)
				}()
			}
		}
	})
	// A goroutine that is nothing but Unlock.
	for i := 0; i < n/60; i++ {
		a.Lock()
		started.Add(1)
		go func() {
			a.Lock()
			a.Unlock()
			ended.Add(1)
		}()
		yieldTo(0)
		go a.Unlock()
	}
	harness.Poll(func() bool { return started.Load() == ended.Load() })
}

//go:noinline
func walk(path uint32, turns int, mu *sync.Mutex) int {
	if turns == 0 {
		mu.Unlock()
		return 0
	}
	if path&1 == 0 {
		return walk(path>>1, turns-1, mu) + 1
	}
	return walk(path>>1, turns-1, mu) + 2
}

// stressPaths: one lock, with thousands of stacks that release it, most of them seldom.
func stressPaths(n int) {
	const turns = 12
	var mu sync.Mutex
	var number atomic.Uint32
	harness.Together(8, func() {
		for i := 0; i < n/8; i++ {
			mu.Lock()
			yieldTo(i)
			walk(number.Add(0x9e3779b9)>>(32-turns), turns, &mu)
		}
	})
}

// stressMany: more locks than the runtime's table of semaphores has rows, so that some locks
// with waiters at the same time share a row.
func stressMany(n int) {
	locks := make([]sync.RWMutex, 600)
	totals := make([]int, len(locks))
	var number atomic.Int64
	harness.Together(12, func() {
		first := number.Add(1)
		for i := 0; i < n/12; i++ {
			// All goroutines go through the locks in the same order.
			at := (i/4 + int(first)/6) % len(locks)
			locks[at].Lock()
			totals[at]++
			yieldTo(i)
			locks[at].Unlock()
			locks[at].RLock()
			yieldTo(i + 4)
			locks[at].RUnlock()
		}
	})
	sum := 0
	for _, total := range totals {
		sum += total
	}
	harness.Assert(sum == n/12*12)
}

// stressCond is a bounded queue.
func stressCond(n int) {
	var mu sync.Mutex
	notEmpty, notFull := sync.NewCond(&mu), sync.NewCond(&mu)
	var queue []int
	var number, taken, put atomic.Int64
	harness.Together(4, func() {
		puts := number.Add(1)%2 == 0
		for i := 0; i < n/4; i++ {
			mu.Lock()
			if puts {
				for len(queue) == 3 {
					notFull.Wait()
				}
				queue = append(queue, i)
				put.Add(int64(i))
				notEmpty.Signal()
			} else {
				for len(queue) == 0 {
					notEmpty.Wait()
				}
				taken.Add(int64(queue[0]))
				queue = queue[1:]
				notFull.Broadcast()
			}
			mu.Unlock()
		}
	})
	harness.Assert(taken.Load() == put.Load())
}

// stressFleeting: a new lock every time, with a new goroutine that ends.
func stressFleeting(n int) {
	var ended atomic.Int64
	harness.Together(3, func() {
		for i := 0; i < n/3; i++ {
			l := &fleeting{}
			l.Lock()
			for j := 0; j < 2; j++ {
				go func() {
					l.Lock()
					runtime.Gosched()
					l.Unlock()
					ended.Add(1)
				}()
			}
			yieldTo(0)
			l.Unlock()
			if i%256 == 255 {
				runtime.GC()
			}
		}
	})
	harness.Poll(func() bool { return ended.Load() == int64(n/3*3*2) })
}
