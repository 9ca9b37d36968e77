package main

import (
	"runtime"
	"sync"
	"unsafe"
)

// The holder of a contested lock never releases it.
type contested struct {
	mu   sync.Mutex
	open chan bool
}

// woken waits in Mutex.Lock, wakes, and does not get the semaphore: the runtime parks it again in
// the same call of semacquire1.
//
//go:noinline
func (c *contested) woken(w *guest) {
	w.begin()
	c.mu.Lock()
}

// quicker takes the semaphore that the other goroutine was woken for, and then waits for the lock.
//
//go:noinline
func (c *contested) quicker(w *guest) {
	w.begin()
	c.mu.Lock()
}

// overtake returns the hanging goroutines by function.
func overtake() map[string]*stay {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := &contested{open: make(chan bool)}
	first, second := &guest{}, &guest{}
	c.mu.Lock()
	go c.woken(first)
	awaitParked(&first.id)
	go c.leave(second)
	awaitParked(&second.id)
	awaitParked(&first.id)
	lock := stay{
		Kind: "sync.Mutex", Name: "main.contested.mu", Address: uintptr(unsafe.Pointer(&c.mu)),
	}
	one, other := lock, lock
	one.Starts, other.Starts = []int64{first.startNs}, []int64{second.startNs}
	return map[string]*stay{"main.(*contested).woken": &one, "main.(*contested).quicker": &other}
}

// leave wakes the first and takes the lock again. Then it starts the second, which runs next,
// before the first, which was made runnable earlier, and stops.
func (c *contested) leave(second *guest) {
	c.mu.Unlock()
	c.mu.Lock()
	go c.quicker(second)
	<-c.open
}
