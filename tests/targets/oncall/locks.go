package main

import (
	"sync"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

// A vault has locks; those of two vaults are far apart.
type vault struct {
	notes   [40]int
	mu      sync.Mutex
	rw      sync.RWMutex
	other   sync.RWMutex
	pending sync.WaitGroup
	ready   *sync.Cond
}

var (
	never  chan int // made at start: nobody sends
	shared struct {
		count int
		mu    sync.Mutex
	}
)

func waitForLocks() {
	never = make(chan int)
	v := &vault{ready: sync.NewCond(new(sync.Mutex))}
	v.pending.Add(3)

	// One that had both locks, and has none any more.
	begin("release", func() { release(v) })
	await(reports["release"].ID, "chan receive")
	scene("holdShared", "lockShared", "sync.Mutex.Lock", &shared.mu, holdShared, lockShared)
	scene("hold", "lock", "sync.Mutex.Lock", &v.mu, v.hold, v.lock)
	scene("read", "write", "sync.RWMutex.Lock", &v.rw, v.read, v.write)
	scene("holdWrite", "readLater", "sync.RWMutex.RLock", &v.other, v.holdWrite, v.readLater)

	begin("waitForGroup", v.waitForGroup).Address = address(&v.pending)
	begin("waitForCond", v.waitForCond).Address = address(v.ready)
	await(reports["waitForGroup"].ID, "sync.WaitGroup.Wait")
	await(reports["waitForCond"].ID, "sync.Cond.Wait")
}

// scene starts a goroutine that takes a lock, and one that waits for it.
func scene(holder, waiter, state string, lock interface{}, hold, wait func()) {
	began := begin(holder, hold)
	harness.AwaitState(began.ID, "chan receive", "sleep", "select")
	waits := begin(waiter, wait)
	await(waits.ID, state)
	waits.Address, waits.Holder = address(lock), began.ID
}

func address(lock interface{}) uintptr {
	switch each := lock.(type) {
	case *sync.Mutex:
		return uintptr(unsafe.Pointer(each))
	case *sync.RWMutex:
		return uintptr(unsafe.Pointer(each))
	case *sync.WaitGroup:
		return uintptr(unsafe.Pointer(each))
	case *sync.Cond:
		return uintptr(unsafe.Pointer(each))
	}
	panic("oncall: no lock")
}

//go:noinline
func release(v *vault) {
	shared.mu.Lock()
	shared.mu.Unlock()
	v.mu.Lock()
	v.notes[0]++
	v.mu.Unlock()
	v.rw.RLock()
	v.rw.RUnlock()
	v.notes[1] += <-never
}

//go:noinline
func holdShared() {
	shared.mu.Lock()
	<-never
	shared.mu.Unlock()
}

//go:noinline
func lockShared() {
	shared.mu.Lock()
	shared.count++
	shared.mu.Unlock()
}

//go:noinline
func (v *vault) hold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	time.Sleep(time.Hour)
}

//go:noinline
func (v *vault) lock() {
	v.mu.Lock()
	v.notes[2]++
	v.mu.Unlock()
}

//go:noinline
func (v *vault) read() {
	v.rw.RLock()
	v.notes[3] = <-never
	v.rw.RUnlock()
}

//go:noinline
func (v *vault) write() {
	v.rw.Lock()
	v.notes[4]++
	v.rw.Unlock()
}

//go:noinline
func (v *vault) holdWrite() {
	v.other.Lock()
	defer v.other.Unlock()
	select {
	case v.notes[5] = <-never:
	case <-time.After(time.Hour):
	}
}

//go:noinline
func (v *vault) readLater() {
	v.other.RLock()
	v.notes[6]++
	v.other.RUnlock()
}

//go:noinline
func (v *vault) waitForGroup() { v.pending.Wait() }

//go:noinline
func (v *vault) waitForCond() {
	v.ready.L.Lock()
	v.ready.Wait()
	v.ready.L.Unlock()
}

// An account of a bank that locks two accounts, in the order of its arguments.
type account struct {
	mu      sync.Mutex
	balance int
}

// deadlock makes three cycles: of two goroutines with two locks, of one goroutine that locks twice,
// and of a reader that reads again while a writer waits for it.
func deadlock() {
	first, second := &account{}, &account{}
	met := make(chan bool, 2)
	begin("transferOne", func() { transfer(first, second, met) })
	begin("transferOther", func() { transfer(second, first, met) })
	met <- true
	met <- true
	again := &account{}
	begin("total", func() { again.total() })
	v := &vault{}
	entered := make(chan bool)
	begin("readTwice", func() { v.readTwice(entered) })
	<-entered
	begin("writeBetween", v.write)
	await(reports["writeBetween"].ID, "sync.RWMutex.Lock")
	entered <- true
	for name, state := range map[string]string{
		"transferOne": "sync.Mutex.Lock", "transferOther": "sync.Mutex.Lock",
		"total": "sync.Mutex.Lock", "readTwice": "sync.RWMutex.RLock",
	} {
		await(reports[name].ID, state)
	}
}

//go:noinline
func transfer(from, to *account, met chan bool) {
	from.mu.Lock()
	<-met
	to.mu.Lock()
	from.balance--
	to.balance++
	to.mu.Unlock()
	from.mu.Unlock()
}

//go:noinline
func (a *account) total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.size() + 1
}

//go:noinline
func (a *account) size() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance
}

//go:noinline
func (v *vault) readTwice(entered chan bool) {
	v.rw.RLock()
	entered <- true
	<-entered
	v.readInside()
	v.rw.RUnlock()
}

//go:noinline
func (v *vault) readInside() {
	v.rw.RLock()
	v.notes[7]++
	v.rw.RUnlock()
}
