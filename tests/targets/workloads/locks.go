package main

import (
	"runtime"
	"sync"
)

const contenders = 6

// contendedMutex makes more goroutines than processors take one mutex in turns; they yield while
// they hold it, so that the others queue up. A unit is a Lock and an Unlock, which on one
// processor nearly always has a goroutine to wake.
func contendedMutex(p parameters) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := 0; i < contenders; i++ {
		turns := share(p.units, i, contenders)
		all.Add(1)
		go below(p.frames, func() {
			defer all.Done()
			contend(&mu, turns)
		})
	}
	all.Wait()
}

//go:noinline
func contend(mu *sync.Mutex, turns int) {
	for i := 0; i < turns; i++ {
		mu.Lock()
		runtime.Gosched()
		mu.Unlock()
	}
}

const (
	readers       = 8
	readsPerWrite = 20
)

// registry has many readers and few writers.
type registry struct {
	mu      sync.RWMutex
	entries map[int]int
}

// readMostly writes in one operation of twenty, and else reads. A unit is an operation.
func readMostly(p parameters) {
	var all sync.WaitGroup
	shared := &registry{entries: map[int]int{}}
	for i := 0; i < readers; i++ {
		operations := share(p.units, i, readers)
		all.Add(1)
		go below(p.frames, func() {
			defer all.Done()
			for i := 0; i < operations; i++ {
				if i%readsPerWrite == 0 {
					shared.write(i)
				} else {
					shared.read(i)
				}
			}
		})
	}
	all.Wait()
}

//go:noinline
func (r *registry) read(key int) int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.entries[key%100] + compute(key)
}

//go:noinline
func (r *registry) write(key int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[key%100] = compute(key)
}
