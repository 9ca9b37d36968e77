package main

import (
	"sync"
	"unsafe"

	"ebpfprof.test/harness"
)

// An account of a bank that locks two accounts, in the order of its arguments.
type account struct {
	mu      sync.Mutex
	balance int
}

//go:noinline
func move(from, to *account, met chan bool) {
	from.mu.Lock()
	<-met
	to.mu.Lock()
	from.balance--
	to.balance++
	to.mu.Unlock()
	from.mu.Unlock()
}

// A shop has a lock of each kind.
type shop struct {
	name  string
	stock sync.Mutex
	till  sync.RWMutex
	staff sync.Mutex
	sold  int
}

var entered = make(chan bool)

// enter waits for the other goroutines of a circle, which then each take their second lock.
//
//go:noinline
func enter() { <-entered }

//go:noinline
func (s *shop) stockThenTill() {
	s.stock.Lock()
	defer s.stock.Unlock()
	enter()
	s.till.Lock()
	s.sold++
	s.till.Unlock()
}

//go:noinline
func (s *shop) tillThenStaff() {
	s.till.Lock()
	enter()
	s.staff.Lock()
	s.sold++
	s.staff.Unlock()
	s.till.Unlock()
}

//go:noinline
func (s *shop) staffThenStock() {
	s.staff.Lock()
	defer s.staff.Unlock()
	enter()
	s.takeStock()
}

//go:noinline
func (s *shop) takeStock() {
	s.stock.Lock()
	s.sold++
	s.stock.Unlock()
}

//go:noinline
func (s *shop) readThenStock() {
	s.till.RLock()
	defer s.till.RUnlock()
	enter()
	s.takeStock()
}

// circles makes deadlocks: of two mutexes; of a mutex, a RWMutex and a mutex; of a mutex and a reader.
func circles() map[string][]int64 {
	var first, second account
	three, read := &shop{}, &shop{}
	found := map[string][]int64{
		"two": {
			begin(func() { move(&first, &second, entered) }),
			begin(func() { move(&second, &first, entered) }),
		},
		"three": {
			begin(three.stockThenTill), begin(three.tillThenStaff), begin(three.staffThenStock),
		},
		"read": {begin(read.stockThenTill), begin(read.readThenStock)},
	}
	states := []string{"sync.Mutex.Lock", "sync.RWMutex.Lock", "semacquire"}
	for _, ids := range found {
		for _, id := range ids {
			harness.AwaitState(id, "chan receive")
		}
	}
	for _, ids := range found {
		for range ids {
			entered <- true
		}
	}
	for _, ids := range found {
		for _, id := range ids {
			harness.AwaitState(id, states...)
		}
	}
	return found
}

// takeAndAwait takes a lock, which await gives back while it waits.
//
//go:noinline
func (a *account) takeAndAwait() {
	a.mu.Lock()
	a.await()
	a.balance++
	a.mu.Unlock()
}

//go:noinline
func (a *account) await() {
	a.mu.Unlock()
	enter()
	a.mu.Lock()
	a.balance--
}

// perhaps takes a lock on one of two ways.
//
//go:noinline
func perhaps(a *account, locks bool) {
	if locks {
		a.mu.Lock()
	}
	enter()
	a.balance++
	if locks {
		a.mu.Unlock()
	}
}

// balanced takes a lock and releases it.
//
//go:noinline
func balanced(a *account) {
	a.mu.Lock()
	a.balance++
	a.mu.Unlock()
	enter()
}

// again takes a lock that it has, the second time.
//
//go:noinline
func again(a *account, times int) {
	for i := 0; i < times; i++ {
		a.mu.Lock()
	}
}

// giveBack makes a goroutine wait in await, for a lock that it holds nowhere.
func giveBack() int64 {
	shared := new(account)
	if shared.balance != 0 {
		perhaps(shared, true)
		balanced(shared)
		again(shared, 2)
	}
	id := begin(shared.takeAndAwait)
	harness.AwaitState(id, "chan receive")
	shared.mu.Lock()
	entered <- true
	harness.AwaitState(id, "sync.Mutex.Lock", "semacquire")
	return id
}

type lost struct {
	IDs     []int64 `json:"ids"`
	Address uintptr `json:"address"`
}

// lose overwrites locks that goroutines wait for, as `*s = state{}` does.
func lose() map[string]lost {
	mutex, read, write, group := new(sync.Mutex), new(sync.RWMutex), new(sync.RWMutex), new(sync.WaitGroup)
	mutex.Lock()
	read.Lock()
	write.RLock()
	group.Add(1)
	found := map[string]lost{
		"mutex": {[]int64{begin(mutex.Lock), begin(mutex.Lock)}, uintptr(unsafe.Pointer(mutex))},
		"read":  {[]int64{begin(read.RLock)}, uintptr(unsafe.Pointer(read))},
		"write": {[]int64{begin(write.Lock)}, uintptr(unsafe.Pointer(write))},
		"group": {[]int64{begin(group.Wait)}, uintptr(unsafe.Pointer(group))},
	}
	for _, each := range found {
		for _, id := range each.IDs {
			harness.AwaitBlocked(id)
		}
	}
	*mutex, *read, *write, *group = sync.Mutex{}, sync.RWMutex{}, sync.RWMutex{}, sync.WaitGroup{}
	return found
}
