package main

import (
	"runtime"
	"sync"
	"unsafe"

	"ebpfprof.test/harness"
)

const locksPerCollection = 250

// A fleeting lock is used once; later the collector frees its memory for another one.
type fleeting struct {
	sync.RWMutex
	_ [40]byte
}

// runChurn contends for n locks of each kind once, each with a goroutine of its own, and notes
// the events of that.
func runChurn(n int, planned map[string]int) {
	churnMutexes(n)
	churnWriters(n)
	churnReaders(n)
	for _, name := range []string{"churnMutexes", "churnWriters", "churnReaders"} {
		planned[name] = n
	}
}

// churnOf runs n rounds: main releases `held` of a new lock, a new goroutine waits for `wanted`.
func churnOf(n int, held, wanted func(*fleeting) sync.Locker) {
	places := map[uintptr]bool{}
	round := 0
	var l *fleeting
	var mine sync.Locker
	start := func(p *harness.Partner) {
		if round++; round%locksPerCollection == 0 {
			runtime.GC()
		}
		l = &fleeting{}
		places[uintptr(unsafe.Pointer(l))] = true
		mine = held(l)
		mine.Lock()
		theirs := wanted(l)
		go func() {
			p.Arrive()
			theirs.Lock()
			theirs.Unlock()
			p.Leave()
		}()
	}
	harness.Fresh(n, start, func() { mine.Unlock() })
	harness.Assert(n < 2*locksPerCollection || len(places) < n)
}

func writing(l *fleeting) sync.Locker { return l }
func reading(l *fleeting) sync.Locker { return l.RLocker() }

// A mutex whose address is that of a fleeting lock: its first word is one.
func mutexOf(l *fleeting) sync.Locker { return (*sync.Mutex)(unsafe.Pointer(l)) }

func churnMutexes(n int) { churnOf(n, mutexOf, mutexOf) }
func churnWriters(n int) { churnOf(n, writing, reading) }
func churnReaders(n int) { churnOf(n, reading, writing) }
