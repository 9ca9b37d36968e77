package main

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"ebpfprof.test/harness"
)

var syncOperations = []operation{
	{"mutexLock", 39, mutexLock},
	{"mutexQueue", 4 * 13, mutexQueue},
	{"mutexDeferred", 19, mutexDeferred},
	{"mutexDeferredInLoop", 19, mutexDeferredInLoop},
	{"mutexEmbedded", 18, mutexEmbedded},
	{"mutexInterface", 17, mutexInterface},
	{"mutexMethodValue", 16, mutexMethodValue},
	{"rwReaderBehindWriter", 38, rwReaderBehindWriter},
	{"rwReadersBehindWriter", 6 * 7, rwReadersBehindWriter},
	{"rwWriterBehindReader", 37, rwWriterBehindReader},
	{"rwWriterBehindWriter", 36, rwWriterBehindWriter},
	{"rwLocker", 17, rwLocker},
	{"waitGroup", 35, waitGroup},
	{"waitGroupCrowd", 5 * 4, waitGroupCrowd},
	{"condSignal", 34, condSignal},
	{"condBroadcast", 5 * 6, condBroadcast},
	{"condMutex", 32, condMutex},
	{"onceContended", 32, onceContended},
}

var semaphoreOperations = []operation{
	{"fdReadLock", 31, fdReadLock},
	{"fdWriteLock", 30, fdWriteLock},
	{"semaphoreBarged", 27, semaphoreBarged},
	{"readerBarged", 11, readerBarged},
}

func mutexLock(n int) {
	var mu sync.Mutex
	block := func() {
		mu.Lock()
		mu.Unlock()
	}
	harness.Rounds(n, mu.Lock, block, mu.Unlock)
}

// mutexQueue: four waiters get the lock one after the other.
func mutexQueue(n int) {
	var mu sync.Mutex
	block := func() {
		mu.Lock()
		mu.Unlock()
	}
	harness.Crowd(n, 4, mu.Lock, block, mu.Unlock)
}

func mutexDeferred(n int) {
	var mu sync.Mutex
	block := func() {
		defer mu.Unlock()
		defer mu.Lock()
	}
	harness.Rounds(n, mu.Lock, block, mu.Unlock)
}

// mutexDeferredInLoop: a defer in a loop runs from runtime.deferreturn.
func mutexDeferredInLoop(n int) {
	var mu sync.Mutex
	steps := []func(){mu.Unlock, mu.Lock}
	block := func() {
		for _, step := range steps {
			defer step()
		}
	}
	harness.Rounds(n, mu.Lock, block, mu.Unlock)
}

type account struct {
	sync.Mutex
	balance int
}

func (a *account) deposit(amount int) {
	a.Lock()
	a.balance += amount
	a.Unlock()
}

func mutexEmbedded(n int) {
	a := &account{}
	harness.Rounds(n, a.Lock, func() { a.deposit(1) }, a.Unlock)
}

func mutexInterface(n int) {
	var l sync.Locker = &account{}
	block := func() {
		l.Lock()
		l.Unlock()
	}
	harness.Rounds(n, l.Lock, block, l.Unlock)
}

func mutexMethodValue(n int) {
	a := &account{}
	lock, unlock := a.Lock, a.Unlock
	block := func() {
		call(lock)
		call(unlock)
	}
	harness.Rounds(n, lock, block, unlock)
}

//go:noinline
func call(f func()) { f() }

func rwReaderBehindWriter(n int) {
	var mu sync.RWMutex
	block := func() {
		mu.RLock()
		mu.RUnlock()
	}
	harness.Rounds(n, mu.Lock, block, mu.Unlock)
}

func rwReadersBehindWriter(n int) {
	var mu sync.RWMutex
	block := func() {
		mu.RLock()
		mu.RUnlock()
	}
	harness.Crowd(n, 6, mu.Lock, block, mu.Unlock)
}

func rwWriterBehindReader(n int) {
	var mu sync.RWMutex
	block := func() {
		mu.Lock()
		mu.Unlock()
	}
	harness.Rounds(n, mu.RLock, block, mu.RUnlock)
}

func rwWriterBehindWriter(n int) {
	var mu sync.RWMutex
	block := func() {
		mu.Lock()
		mu.Unlock()
	}
	harness.Rounds(n, mu.Lock, block, mu.Unlock)
}

func rwLocker(n int) {
	var mu sync.RWMutex
	reader := mu.RLocker()
	block := func() {
		reader.Lock()
		reader.Unlock()
	}
	harness.Rounds(n, mu.Lock, block, mu.Unlock)
}

func waitGroup(n int) {
	var group sync.WaitGroup
	harness.Rounds(n, func() { group.Add(1) }, func() { group.Wait() }, group.Done)
}

func waitGroupCrowd(n int) {
	var group sync.WaitGroup
	harness.Crowd(n, 5, func() { group.Add(1) }, func() { group.Wait() }, group.Done)
}

// noLock keeps the lock of a Cond out of the profile.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

func condSignal(n int) {
	cond := sync.NewCond(noLock{})
	harness.Rounds(n, nil, func() { cond.Wait() }, cond.Signal)
}

func condBroadcast(n int) {
	cond := sync.NewCond(noLock{})
	harness.Crowd(n, 5, nil, func() { cond.Wait() }, cond.Broadcast)
}

func condMutex(n int) {
	var mu sync.Mutex
	cond := sync.NewCond(&mu)
	block := func() {
		mu.Lock()
		cond.Wait()
		mu.Unlock()
	}
	harness.Rounds(n, nil, block, cond.Signal)
}

func onceContended(n int) {
	var once *sync.Once
	p := harness.NewPartner(func() { once.Do(func() {}) })
	for i := 0; i < n; i++ {
		once = new(sync.Once)
		once.Do(func() {
			p.Begin()
			p.AwaitParked()
			harness.Pause(i)
		})
		p.AwaitEnd()
	}
	p.Stop()
}

// fdReadLock: one goroutine waits for input inside Read, the next one for the read lock.
func fdReadLock(n int) {
	reader, writer, err := os.Pipe()
	harness.Check(err)
	read := func() {
		_, err := reader.Read(make([]byte, 1))
		harness.Check(err)
	}
	first, second := harness.NewPartner(read), harness.NewPartner(read)
	for i := 0; i < n; i++ {
		first.Begin()
		first.AwaitInput()
		second.Begin()
		second.AwaitParked()
		harness.Pause(i)
		_, err := writer.Write([]byte("ab"))
		harness.Check(err)
		first.AwaitEnd()
		second.AwaitEnd()
	}
	first.Stop()
	second.Stop()
	harness.Check(reader.Close())
	harness.Check(writer.Close())
}

// fdWriteLock: the same with a full pipe and two writers.
func fdWriteLock(n int) {
	reader, writer, err := os.Pipe()
	harness.Check(err)
	full := make([]byte, 1<<17)
	size := make([]byte, len(full))
	write := func() {
		_, err := writer.Write(full)
		harness.Check(err)
	}
	first, second := harness.NewPartner(write), harness.NewPartner(write)
	for i := 0; i < n; i++ {
		first.Begin()
		first.AwaitInput()
		second.Begin()
		second.AwaitParked()
		harness.Pause(i)
		for left := 2 * len(full); left > 0; {
			got, err := reader.Read(size)
			harness.Check(err)
			left -= got
		}
		first.AwaitEnd()
		second.AwaitEnd()
	}
	first.Stop()
	second.Stop()
	harness.Check(reader.Close())
	harness.Check(writer.Close())
}

//go:linkname semacquire sync.runtime_Semacquire
func semacquire(addr *uint32)

//go:linkname semrelease sync.runtime_Semrelease
func semrelease(addr *uint32, handoff bool, skipframes int)

// releaseBarged wakes the one goroutine that waits for the semaphore, but takes the semaphore
// before that runs, three times over: it parks again, inside the same call.
func releaseBarged(p *harness.Partner, semaphore *uint32, round int) {
	for i := 0; i < 3; i++ {
		semrelease(semaphore, false, 0)
		if !atomic.CompareAndSwapUint32(semaphore, 1, 0) {
			return
		}
		p.AwaitParked()
		harness.Pause(round)
	}
	semrelease(semaphore, false, 0)
}

func semaphoreBarged(n int) {
	var semaphore uint32
	p := harness.NewPartner(func() { semacquire(&semaphore) })
	for i := 0; i < n; i++ {
		p.Begin()
		p.AwaitParked()
		harness.Pause(i)
		releaseBarged(p, &semaphore, i)
		p.AwaitEnd()
	}
	p.Stop()
}

// readerBarged does the same to a reader of an RWMutex, whose third word is the semaphore that
// readers wait for.
func readerBarged(n int) {
	var mu sync.RWMutex
	semaphore := &(*[6]uint32)(unsafe.Pointer(&mu))[3]
	p := harness.NewPartner(func() {
		mu.RLock()
		mu.RUnlock()
	})
	for i := 0; i < n; i++ {
		mu.Lock()
		p.Begin()
		p.AwaitParked()
		harness.Pause(i)
		mu.Unlock()
		if atomic.CompareAndSwapUint32(semaphore, 1, 0) {
			p.AwaitParked()
			releaseBarged(p, semaphore, i)
		}
		p.AwaitEnd()
	}
	p.Stop()
}
