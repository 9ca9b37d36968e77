// Holders has a lock whose holder waits with it, while the main goroutine, which used the lock
// before, waits for a ticker. On "deadlock" two goroutines wait for each other's locks, and more and
// more others come to wait for these.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

type cache struct {
	name   string
	mu     sync.Mutex
	values map[string]int
}

var (
	isQuiet = len(os.Args) > 3
	uses    int
	global  *cache
)

//go:noinline
func (c *cache) hold(goes <-chan bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.values) == 0 {
		wait(goes)
	}
}

//go:noinline
func wait(goes <-chan bool) { <-goes }

//go:noinline
func both(first, second *cache, met *sync.WaitGroup) {
	first.mu.Lock()
	met.Done()
	met.Wait()
	second.mu.Lock()
	uses++
	second.mu.Unlock()
	first.mu.Unlock()
}

// use takes the lock in one of several ways, as many programs do in their main loop.
//
//go:noinline
func use(c *cache, way string, ready func(), tick <-chan time.Time) {
	for {
		switch way {
		case "condition":
			if !isQuiet {
				c.mu.Lock()
			}
			uses += len(c.values)
			fmt.Fprint(os.Stderr, "")
			if !isQuiet {
				c.mu.Unlock()
			}
		case "value":
			unlock := c.mu.Unlock
			c.mu.Lock()
			fmt.Fprint(os.Stderr, "")
			unlock()
		case "pointer":
			mu := &c.mu
			mu.Lock()
			fmt.Fprint(os.Stderr, "")
			c.mu.Unlock()
		case "global":
			global.mu.Lock()
			uses += len(global.values)
			fmt.Fprint(os.Stderr, "")
			global.mu.Unlock()
		case "early":
			c.mu.Lock()
			if len(c.values) > 3 {
				panic("it has no values")
			}
			fmt.Fprint(os.Stderr, "")
			if len(c.values) == 1 {
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
		}
		if ready != nil {
			ready()
		}
		<-tick
	}
}

func main() {
	c := &cache{values: map[string]int{}}
	global = c
	if os.Args[1] == "deadlock" {
		other := &cache{}
		var met sync.WaitGroup
		met.Add(2)
		ids := make(chan int64)
		for _, each := range [][2]*cache{{c, other}, {other, c}} {
			go func(first, second *cache) {
				ids <- harness.GoroutineID()
				both(first, second, &met)
			}(each[0], each[1])
		}
		for _, id := range []int64{<-ids, <-ids} {
			harness.AwaitState(id, "sync.Mutex.Lock", "semacquire")
		}
		go func() {
			for {
				go c.hold(nil)
				go other.hold(nil)
				time.Sleep(2 * time.Millisecond)
			}
		}()
		harness.Ready()
		harness.AwaitEnd()
		return
	}
	go func() {
		harness.AwaitEnd()
		os.Exit(0)
	}()
	use(c, os.Args[1], func() {
		ids := make(chan int64)
		hold := func() {
			ids <- harness.GoroutineID()
			c.hold(make(chan bool))
		}
		go hold()
		holder := <-ids
		harness.AwaitState(holder, "chan receive")
		for i := 0; i < 3; i++ {
			go hold()
			harness.AwaitState(<-ids, "sync.Mutex.Lock", "semacquire")
		}
		fmt.Println("holder", holder)
		harness.Ready()
	}, make(chan time.Time))
}
