// Nopprof knows nothing of profiling: it imports no pprof and calls no Set...ProfileRate. Its
// goroutines wait for a channel, a lock and a condition some 200 times each.
//
// Protocol: it prints "ready PID", waits for a line, runs, prints "done", waits for the end of
// its input.
package main

import (
	"fmt"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

const rounds = 200

func main() {
	harness.Ready()
	if !harness.Next() {
		return
	}
	handOver()
	hold()
	gather()
	fmt.Println("done")
	harness.AwaitEnd()
}

// handOver: the sender is slow, every receive waits.
func handOver() {
	c := make(chan int)
	go func() {
		for i := 0; i < rounds; i++ {
			time.Sleep(200 * time.Microsecond)
			c <- i
		}
		close(c)
	}()
	for range c {
	}
}

// hold: goroutines sleep with the lock held.
func hold() {
	var mu sync.Mutex
	var group sync.WaitGroup
	for g := 0; g < 4; g++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < rounds/4; i++ {
				mu.Lock()
				time.Sleep(50 * time.Microsecond)
				mu.Unlock()
			}
		}()
	}
	group.Wait()
}

// gather: one goroutine waits on a condition that another one makes true, again and again.
func gather() {
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	items := 0
	go func() {
		for i := 0; i < rounds; i++ {
			time.Sleep(100 * time.Microsecond)
			mu.Lock()
			items++
			mu.Unlock()
			changed.Signal()
		}
	}()
	for taken := 0; taken < rounds; {
		mu.Lock()
		for items == 0 {
			changed.Wait()
		}
		taken += items
		items = 0
		mu.Unlock()
	}
}
