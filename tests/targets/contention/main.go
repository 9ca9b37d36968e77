// Contention has goroutines that wait for each other all the time, for milliseconds at most, in
// each way that there is: none of them ever hangs. On request some do.
//
// Protocol: it prints "ready PID", starts, and then obeys the lines that it reads:
//
//	longest   prints a line of JSON: the longest wait so far of each goroutine, by its id, in ns by
//	          its own clock; those that go on, too
//	hang      makes a goroutine hang in each way (hang.go); prints "hanging GOID..." when all of them
//	          are parked
//	release   ends these waits; prints "released" when the goroutines have ended
//
// It ends when its input closes.
package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

func main() {
	go lockAndSleep()
	go passOn()
	go choose()
	go readAndWrite()
	go awaitNews()
	go starve()
	go lockInOrder()
	go giveBack()
	go joinGroups()
	go readALot()
	var held *hanging
	harness.Ready()
	for harness.Next() {
		switch harness.Command() {
		case "longest":
			harness.Say(json.Marshal(longest()))
		case "hang":
			held = hang()
			fmt.Print("hanging")
			for _, id := range held.ids {
				fmt.Print(" ", id)
			}
			fmt.Println()
		case "release":
			held.release()
			fmt.Println("released")
		default:
			panic("contention: no such command")
		}
	}
}

// A clock knows the waits of one goroutine.
type clock struct {
	id      int64
	since   atomic.Int64 // of the wait that goes on, in ns since the start; 0 without one
	longest atomic.Int64
}

var (
	start  = time.Now()
	mu     sync.Mutex
	clocks []*clock
)

// newClock returns the clock of the goroutine that calls it.
func newClock() *clock {
	c := &clock{id: harness.GoroutineID()}
	mu.Lock()
	defer mu.Unlock()
	clocks = append(clocks, c)
	return c
}

// wait calls something that waits.
//
//go:noinline
func (c *clock) wait(operation func()) {
	c.begin()
	operation()
	c.end()
}

// begin and end stand around something that waits and that wait should not call.
func (c *clock) begin() { c.since.Store(int64(time.Since(start)) + 1) }

func (c *clock) end() {
	c.note()
	c.since.Store(0)
}

// note notes for how long the wait that goes on has lasted, if there is one.
func (c *clock) note() {
	since := c.since.Load()
	if since == 0 {
		return
	}
	length := int64(time.Since(start)) - since
	for old := c.longest.Load(); old < length; old = c.longest.Load() {
		if c.longest.CompareAndSwap(old, length) {
			break
		}
	}
}

func longest() map[int64]int64 {
	mu.Lock()
	defer mu.Unlock()
	found := map[int64]int64{}
	for _, each := range clocks {
		each.note()
		found[each.id] = each.longest.Load()
	}
	return found
}
