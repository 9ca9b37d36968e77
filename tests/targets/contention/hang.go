package main

import (
	"sync"

	"ebpfprof.test/harness"
)

// hanging are goroutines that hang until release.
type hanging struct {
	ids      []int64
	mutex    sync.Mutex
	rw       sync.RWMutex
	read     sync.RWMutex
	sent     chan int
	selected chan int
	group    sync.WaitGroup
	all      sync.WaitGroup
}

func hang() *hanging {
	h := &hanging{sent: make(chan int), selected: make(chan int)}
	h.mutex.Lock()
	h.read.Lock()
	h.rw.RLock()
	h.group.Add(1)
	h.begin(h.mutex.Lock)
	h.begin(h.read.RLock)
	h.begin(h.rw.Lock)
	h.begin(func() { h.sent <- 1 })
	h.begin(func() {
		select {
		case <-h.selected:
		case h.selected <- 1:
		}
	})
	h.begin(h.group.Wait)
	return h
}

// begin starts a goroutine that hangs, and returns when it is parked.
func (h *hanging) begin(operation func()) {
	ids := make(chan int64)
	h.all.Add(1)
	go func() {
		defer h.all.Done()
		ids <- harness.GoroutineID()
		operation()
	}()
	id := <-ids
	harness.AwaitBlocked(id)
	h.ids = append(h.ids, id)
}

func (h *hanging) release() {
	h.mutex.Unlock()
	h.read.Unlock()
	h.rw.RUnlock()
	<-h.sent
	close(h.selected)
	h.group.Done()
	h.all.Wait()
}
