package main

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"ebpfprof.test/harness"
)

// A group has locks and channels in which goroutines hang. Main holds the locks.
type group struct {
	mu                     sync.Mutex
	forReaders, forWriters sync.RWMutex
	received, selected     chan int
	done                   sync.WaitGroup
	ended                  sync.WaitGroup
}

// A guest is a goroutine that hangs.
type guest struct {
	id      int64
	startNs int64 // CLOCK_MONOTONIC, just before it hangs
}

func (w *guest) begin() {
	atomic.StoreInt64(&w.id, harness.GoroutineID())
	w.startNs = monotonicNs()
}

//go:noinline
func (g *group) inMutex(w *guest) {
	w.begin()
	g.mu.Lock()
	g.mu.Unlock()
}

//go:noinline
func (g *group) inRLock(w *guest) {
	w.begin()
	g.forReaders.RLock()
	g.forReaders.RUnlock()
}

//go:noinline
func (g *group) inRWLock(w *guest) {
	w.begin()
	g.forWriters.Lock()
	g.forWriters.Unlock()
}

//go:noinline
func (g *group) inReceive(w *guest) {
	w.begin()
	<-g.received
}

//go:noinline
func (g *group) inSelect(w *guest) {
	w.begin()
	select {
	case <-g.selected:
	case g.selected <- 1:
	}
}

//go:noinline
func (g *group) inWaitGroup(w *guest) {
	w.begin()
	g.done.Wait()
}

func newGroup() *group {
	g := &group{received: make(chan int), selected: make(chan int)}
	g.mu.Lock()
	g.forReaders.Lock()
	g.forWriters.RLock()
	g.done.Add(1)
	return g
}

func (g *group) release() {
	g.mu.Unlock()
	g.forReaders.Unlock()
	g.forWriters.RUnlock()
	close(g.received)
	close(g.selected)
	g.done.Done()
	g.ended.Wait()
}

type stay struct {
	Starts  []int64 `json:"starts_ns"`
	Address uintptr `json:"address"` // of the lock; 0 if there is none
	Name    string  `json:"name"`
	Kind    string  `json:"kind"`
}

// hang returns the hanging goroutines by function, when all of them hang.
func (g *group) hang() map[string]*stay {
	const locks = "main.group.{forReaders,forWriters}"
	mu := uintptr(unsafe.Pointer(&g.mu))
	forReaders := uintptr(unsafe.Pointer(&g.forReaders))
	forWriters := uintptr(unsafe.Pointer(&g.forWriters))
	stays := map[string]*stay{
		// Of two writers, the second waits for the first.
		"main.(*group).inMutex": g.start(2, g.inMutex, stay{
			Kind: "sync.Mutex", Name: "main.group.mu", Address: mu,
		}),
		"main.(*group).inRLock": g.start(2, g.inRLock, stay{
			Kind: "sync.RWMutex", Name: locks, Address: forReaders,
		}),
		"main.(*group).inRWLock": g.start(2, g.inRWLock, stay{
			Kind: "sync.RWMutex", Name: locks, Address: forWriters,
		}),
		"main.(*group).inReceive":   g.start(1, g.inReceive, stay{}),
		"main.(*group).inSelect":    g.start(1, g.inSelect, stay{}),
		"main.(*group).inWaitGroup": g.start(1, g.inWaitGroup, stay{}),
	}
	return stays
}

func (g *group) start(count int, wait func(*guest), s stay) *stay {
	for i := 0; i < count; i++ {
		w := &guest{}
		g.ended.Add(1)
		go func() {
			wait(w)
			g.ended.Done()
		}()
		awaitParked(&w.id)
		s.Starts = append(s.Starts, w.startNs)
	}
	return &s
}

// monotonicNs reads CLOCK_MONOTONIC.
func monotonicNs() int64 {
	var now syscall.Timespec
	const clockMonotonic = 1
	_, _, failed := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		panic(failed)
	}
	return now.Nano()
}
