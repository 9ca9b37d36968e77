package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe"

	"ebpfprof.test/harness"
)

// Waits that Go's mutex profile must not show: no lock causes them, although many are for the same
// semaphores of the runtime that locks use.
var silentOperations = []operation{
	{"waitGroup", 0, waitGroup},
	{"condSignal", 0, condSignal},
	{"condBroadcast", 0, condBroadcast},
	{"bareSemaphore", 0, bareSemaphore},
	{"fdReadLock", 0, fdReadLock},
	{"fdWriteLock", 0, fdWriteLock},
	{"channels", 0, channels},
	{"selects", 0, selects},
	{"timers", 0, timers},
	{"uncontended", 0, uncontended},
	{"tryFails", 0, tryFails},
	{"stillQueued", 0, stillQueued},
	{"collecting", 0, collecting},
}

const silentRounds = 20

func waitGroup(int) {
	var group sync.WaitGroup
	prepare := func() { group.Add(1) }
	harness.Crowd(5*silentRounds, 5, prepare, func() { group.Wait() }, group.Done)
}

// noLock keeps the lock of a Cond out of the profile.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

func condSignal(int) {
	cond := sync.NewCond(noLock{})
	harness.Rounds(silentRounds, nil, func() { cond.Wait() }, cond.Signal)
}

func condBroadcast(int) {
	cond := sync.NewCond(noLock{})
	harness.Crowd(5*silentRounds, 5, nil, func() { cond.Wait() }, cond.Broadcast)
}

//go:linkname semacquire sync.runtime_Semacquire
func semacquire(addr *uint32)

//go:linkname semrelease sync.runtime_Semrelease
func semrelease(addr *uint32, handoff bool, skipframes int)

func bareSemaphore(int) {
	var semaphore uint32
	wake := func() { semrelease(&semaphore, false, 0) }
	harness.Rounds(silentRounds, nil, func() { semacquire(&semaphore) }, wake)
}

// fdLock: the first of two goroutines waits for the other end of a pipe, the second one for the
// lock to do the same. `satisfy` ends both waits.
func fdLock(act, satisfy func()) {
	first, second := harness.NewPartner(act), harness.NewPartner(act)
	for i := 0; i < silentRounds; i++ {
		first.Begin()
		first.AwaitInput()
		second.Begin()
		second.AwaitParked()
		harness.Pause(i)
		satisfy()
		first.AwaitEnd()
		second.AwaitEnd()
	}
	first.Stop()
	second.Stop()
}

func fdReadLock(int) {
	reader, writer, err := os.Pipe()
	harness.Check(err)
	read := func() {
		_, err := reader.Read(make([]byte, 1))
		harness.Check(err)
	}
	fdLock(read, func() {
		_, err := writer.Write([]byte("ab"))
		harness.Check(err)
	})
	harness.Check(reader.Close())
	harness.Check(writer.Close())
}

func fdWriteLock(int) {
	reader, writer, err := os.Pipe()
	harness.Check(err)
	full := make([]byte, 1<<17)
	buffer := make([]byte, len(full))
	write := func() {
		_, err := writer.Write(full)
		harness.Check(err)
	}
	fdLock(write, func() {
		for left := 2 * len(full); left > 0; {
			got, err := reader.Read(buffer)
			harness.Check(err)
			left -= got
		}
	})
	harness.Check(reader.Close())
	harness.Check(writer.Close())
}

func channels(int) {
	c := make(chan int)
	harness.Rounds(silentRounds, nil, func() { <-c }, func() { c <- 1 })
	harness.Rounds(silentRounds, nil, func() { c <- 1 }, func() { <-c })
	var closed chan int
	prepare := func() { closed = make(chan int) }
	harness.Rounds(silentRounds, prepare, func() { <-closed }, func() { close(closed) })
}

func selects(int) {
	a, b := make(chan int), make(chan int)
	block := func() {
		select {
		case <-a:
		case <-b:
		}
	}
	harness.Rounds(silentRounds, nil, block, func() { a <- 1 })
	harness.Rounds(silentRounds, nil, block, func() { b <- 1 })
}

func timers(int) {
	// The first timer reads a setting, behind a sync.Once (Go 1.23 and later).
	time.NewTimer(time.Hour).Stop()
	harness.Together(3, func() {
		for i := 0; i < silentRounds; i++ {
			time.Sleep(100 * time.Microsecond)
			<-time.After(100 * time.Microsecond)
		}
	})
}

func uncontended(int) {
	var mu sync.Mutex
	var rw sync.RWMutex
	harness.Together(1, func() {
		for i := 0; i < 1000; i++ {
			mu.Lock()
			mu.Unlock()
			rw.RLock()
			rw.RUnlock()
			rw.Lock()
			rw.Unlock()
		}
	})
}

func tryFails(int) {
	var mu sync.Mutex
	var rw sync.RWMutex
	mu.Lock()
	rw.Lock()
	var failures atomic.Int64
	harness.Together(2, func() {
		for i := 0; i < 100; i++ {
			if !mu.TryLock() && !rw.TryLock() && !rw.TryRLock() {
				failures.Add(1)
			}
		}
	})
	harness.Assert(failures.Load() == 200)
	mu.Unlock()
	rw.Unlock()
}

// stillQueued: a wait counts at the release of the lock; this one is never released.
func stillQueued(int) {
	var mu sync.Mutex
	mu.Lock()
	p := harness.NewPartner(func() { mu.Lock() })
	p.Begin()
	p.AwaitParked()
}

// collecting: several goroutines wait for the runtime's own semaphores.
func collecting(int) {
	harness.Together(4, func() {
		var stats runtime.MemStats
		for i := 0; i < 5; i++ {
			runtime.GC()
			debug.FreeOSMemory()
			runtime.ReadMemStats(&stats)
			debug.SetGCPercent(debug.SetGCPercent(50))
		}
	})
}
