package main

import (
	"sync"
	"time"

	"ebpfprof.test/harness"
)

const crowd = 6

// starve has goroutines that take a lock again at once, for so long that it goes to starvation mode:
// it is handed from one to the next, and is not locked while the next one is on its way.
func starve() {
	var shared sync.Mutex
	several(crowd, func(c *clock) {
		for {
			c.wait(shared.Lock)
			harness.Spin(20 * time.Microsecond)
			shared.Unlock()
			c.wait(func() { time.Sleep(50 * time.Microsecond) })
		}
	})
	several(1, func(c *clock) {
		for {
			c.wait(shared.Lock)
			c.wait(func() { time.Sleep(held) })
			shared.Unlock()
		}
	})
}

// A pair of locks that all take in the same order.
type pair struct {
	first, second sync.Mutex
	both          sync.RWMutex
	count         int
}

// lockInOrder has goroutines that hold a lock and wait for the next one, never in a circle.
func lockInOrder() {
	pairs := [3]*pair{{}, {}, {}}
	several(crowd, func(c *clock) {
		for i := 0; ; i++ {
			pairs[i%3].add(c)
		}
	})
	several(2, func(c *clock) {
		for i := 0; ; i++ {
			pairs[i%3].read(c)
			c.wait(func() { time.Sleep(held / 4) })
		}
	})
}

//go:noinline
func (p *pair) add(c *clock) {
	c.wait(p.first.Lock)
	defer p.first.Unlock()
	c.wait(p.second.Lock)
	c.wait(p.both.Lock)
	c.wait(func() { time.Sleep(held / 8) })
	p.count++
	p.both.Unlock()
	p.second.Unlock()
}

//go:noinline
func (p *pair) read(c *clock) {
	c.wait(p.both.RLock)
	c.wait(func() { time.Sleep(held / 8) })
	p.both.RUnlock()
}

// A queue whose wait gives the lock of its callers back, and takes it again.
type queue struct {
	mu    sync.Mutex
	news  chan bool
	count int
}

// giveBack has goroutines that wait for a lock which functions further out have taken, too, and which
// was released in between.
func giveBack() {
	q := &queue{news: make(chan bool)}
	several(crowd, func(c *clock) {
		for {
			q.take(c)
		}
	})
	several(2, func(c *clock) {
		for {
			c.wait(func() { time.Sleep(held / 4) })
			c.wait(func() { q.news <- true })
		}
	})
}

//go:noinline
func (q *queue) take(c *clock) {
	c.begin()
	q.mu.Lock()
	c.end()
	q.await(c)
	q.count++
	q.mu.Unlock()
}

//go:noinline
func (q *queue) await(c *clock) {
	q.mu.Unlock()
	c.wait(func() { <-q.news })
	c.begin()
	q.mu.Lock()
	c.end()
	c.wait(func() { time.Sleep(held / 8) })
}

// joinGroups has goroutines that wait for groups which are done at once, or soon.
func joinGroups() {
	several(2, func(c *clock) {
		for {
			var group sync.WaitGroup
			for i := 0; i < crowd; i++ {
				group.Add(1)
				go func(i int) {
					defer group.Done()
					harness.Spin(time.Duration(i) * 20 * time.Microsecond)
				}(i)
			}
			c.wait(group.Wait)
			c.wait(func() { time.Sleep(held / 4) })
		}
	})
}

// readALot has readers that hardly ever leave a lock free for the writer.
func readALot() {
	var shared sync.RWMutex
	several(crowd, func(c *clock) {
		for {
			c.wait(shared.RLock)
			harness.Spin(30 * time.Microsecond)
			shared.RUnlock()
			c.wait(func() { time.Sleep(held / 8) })
		}
	})
	several(2, func(c *clock) {
		for {
			c.wait(shared.Lock)
			harness.Spin(10 * time.Microsecond)
			shared.Unlock()
			c.wait(func() { time.Sleep(held / 4) })
		}
	})
}
