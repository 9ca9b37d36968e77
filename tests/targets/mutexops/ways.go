package main

import (
	"runtime"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

// Ways to write an Unlock.
var wayOperations = []operation{
	{"deferred", 73, deferred},
	{"deferredInLoop", 71, deferredInLoop},
	{"deferredClosure", 67, deferredClosure},
	{"deferredWithArguments", 61, deferredWithArguments},
	{"panicking", 21, panicking},
	{"recovered", 27, recovered},
	{"embedded", 59, embedded},
	{"embeddedPointer", 39, embeddedPointer},
	{"throughInterface", 33, throughInterface},
	{"throughRLocker", 17, throughRLocker},
	{"methodValue", 25, methodValue},
	{"methodExpression", 15, methodExpression},
	{"inlinedUnlock", 63, inlinedUnlock},
	{"inlinedRUnlock", 65, inlinedRUnlock},
	{"closures", 35, closures},
	{"newGoroutine", 6, startGoroutine},
	{"timerFunction", 38, timerFunction},
	{"lockedThread", 34, lockedThread},
}

func deferred(n int) {
	var mu sync.Mutex
	harness.Rounds(n, mu.Lock, passer(&mu), func() { defer mu.Unlock() })
}

// deferredInLoop: a defer in a loop runs from runtime.deferreturn.
func deferredInLoop(n int) {
	var mu sync.Mutex
	steps := []func(){mu.Unlock, func() {}}
	wake := func() {
		for _, step := range steps {
			defer step()
		}
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

func deferredClosure(n int) {
	var mu sync.Mutex
	wake := func() {
		defer func() {
			if recover() == nil {
				mu.Unlock()
			}
		}()
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

//go:noinline
func unlockAll(locks ...sync.Locker) {
	for _, l := range locks {
		l.Unlock()
	}
}

func deferredWithArguments(n int) {
	var mu sync.Mutex
	wake := func() {
		for i := 0; i < 1; i++ {
			defer unlockAll(&mu)
		}
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

// panicking: a panic runs a deferred function that releases the lock.
func panicking(n int) {
	var mu sync.Mutex
	wake := func() {
		defer func() { recover() }()
		defer mu.Unlock()
		panic("on purpose")
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

// recovered: the release comes after the panic was recovered.
func recovered(n int) {
	var mu sync.Mutex
	wake := func() {
		func() {
			defer func() { recover() }()
			var nothing *account
			nothing.balance++
		}()
		mu.Unlock()
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

type account struct {
	name string
	sync.Mutex
	balance int
}

func (a *account) finish() {
	a.balance++
	a.Unlock()
}

func embedded(n int) {
	a := &account{}
	harness.Rounds(n, a.Lock, passer(a), func() { a.finish() })
}

type shared struct {
	name string
	*sync.RWMutex
}

func embeddedPointer(n int) {
	s := shared{RWMutex: &sync.RWMutex{}}
	harness.Rounds(n, s.RLock, passer(s), func() { s.RUnlock() })
}

var sink sync.Locker

//go:noinline
func release(l sync.Locker) { l.Unlock() }

func throughInterface(n int) {
	sink = &account{}
	harness.Rounds(n, sink.Lock, passer(sink), func() { release(sink) })
}

func throughRLocker(n int) {
	var mu sync.RWMutex
	reader := mu.RLocker()
	harness.Rounds(n, reader.Lock, passer(&mu), func() { reader.Unlock() })
}

//go:noinline
func call(f func()) { f() }

func methodValue(n int) {
	a := &account{}
	unlock := a.Unlock
	harness.Rounds(n, a.Lock, passer(a), func() { call(unlock) })
}

func methodExpression(n int) {
	a := &account{}
	unlock := (*account).Unlock
	if n < 0 {
		unlock = nil
	}
	harness.Rounds(n, a.Lock, passer(a), func() { unlock(a) })
}

func unlockOuter(mu *sync.Mutex)    { unlockInner(mu) }
func unlockInner(mu *sync.Mutex)    { mu.Unlock() }
func rUnlockOuter(mu *sync.RWMutex) { rUnlockInner(mu) }
func rUnlockInner(mu *sync.RWMutex) { mu.RUnlock() }

func inlinedUnlock(n int) {
	var mu sync.Mutex
	harness.Rounds(n, mu.Lock, passer(&mu), func() { unlockOuter(&mu) })
}

func inlinedRUnlock(n int) {
	var mu sync.RWMutex
	harness.Rounds(n, mu.RLock, passer(&mu), func() { rUnlockOuter(&mu) })
}

func closures(n int) {
	var mu sync.Mutex
	wake := func() {
		inner := func() {
			innermost := func() { mu.Unlock() }
			call(innermost)
		}
		call(inner)
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

// startGoroutine: the goroutine begins in a hidden wrapper around the call.
func startGoroutine(n int) {
	a := &account{}
	harness.Rounds(n, a.Lock, passer(a), func() { go newGoroutine(a) })
}

//go:noinline
func newGoroutine(a *account) { a.Unlock() }

// timerFunction: the runtime's timer code starts the goroutine.
func timerFunction(n int) {
	var mu sync.Mutex
	wake := func() { time.AfterFunc(time.Microsecond, func() { mu.Unlock() }) }
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

func lockedThread(n int) {
	var mu sync.Mutex
	unlock, stop := helper(func() {
		runtime.LockOSThread()
		mu.Unlock()
		runtime.UnlockOSThread()
	})
	defer stop()
	harness.Rounds(n, mu.Lock, passer(&mu), unlock)
}
