package main

import (
	"io"
	"log"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

// In all operations main, or its helper, releases the lock for which a partner waits.
var mutexOperations = []operation{
	{"mutexUnlock", 173, mutexUnlock},
	{"lockedElsewhere", 41, lockedElsewhere},
	{"unlockedElsewhere", 43, unlockedElsewhere},
	{"tryLocked", 47, tryLocked},
	{"waitedLong", 13, waitedLong},
	{"overtaken", 30, overtaken},
	{"condMutex", 139, condMutex},
	{"onceContended", 137, onceContended},
	{"logContended", 37, logContended},
}

var rwMutexOperations = []operation{
	{"rwReaderBehindWriter", 167, rwReaderBehindWriter},
	{"rwWriterBehindReader", 163, rwWriterBehindReader},
	{"rwWriterBehindWriter", 157, rwWriterBehindWriter},
	{"rwWriterBehindReaders", 53, rwWriterBehindReaders},
	{"rwRelay", 3 * 19, rwRelay},
	{"rwTryLocked", 23, rwTryLocked},
	{"rwTryRLocked", 29, rwTryRLocked},
	{"rwDeferred", 31, rwDeferred},
}

// passer returns the work of a waiter: it locks and unlocks.
func passer(l sync.Locker) func() {
	return func() {
		l.Lock()
		l.Unlock()
	}
}

// helper makes one other goroutine call f at each call of `do`.
func helper(f func()) (do, stop func()) {
	p := harness.NewPartner(f)
	do = func() {
		p.Begin()
		p.AwaitEnd()
	}
	return do, func() { p.Stop() }
}

func mutexUnlock(n int) {
	var mu sync.Mutex
	harness.Rounds(n, mu.Lock, passer(&mu), func() { mu.Unlock() })
}

func lockedElsewhere(n int) {
	var mu sync.Mutex
	lock, stop := helper(func() { mu.Lock() })
	defer stop()
	harness.Rounds(n, lock, passer(&mu), func() { mu.Unlock() })
}

func unlockedElsewhere(n int) {
	var mu sync.Mutex
	unlock, stop := helper(func() { mu.Unlock() })
	defer stop()
	harness.Rounds(n, mu.Lock, passer(&mu), unlock)
}

func tryLocked(n int) {
	var mu sync.Mutex
	harness.Rounds(n, func() { harness.Assert(mu.TryLock()) }, passer(&mu), func() { mu.Unlock() })
}

// waitedLong: longer than the millisecond after which a waiter is starving.
func waitedLong(n int) {
	var mu sync.Mutex
	wake := func() {
		harness.Spin(3 * time.Millisecond)
		mu.Unlock()
	}
	harness.Rounds(n, mu.Lock, passer(&mu), wake)
}

// overtaken: the unlocking goroutine locks again before the woken waiter can. That queues up
// again, at the head, and since it has waited for more than a millisecond, the next Unlock hands
// it the lock and its processor.
func overtaken(n int) {
	var mu sync.Mutex
	unlock := func() { mu.Unlock() }
	p := harness.NewPartner(passer(&mu))
	overtakings := 0
	for left := n; left > 0; left-- {
		mu.Lock()
		p.Begin()
		p.AwaitParked()
		harness.Spin(1500 * time.Microsecond)
		unlock()
		// The last event has no room for a second one.
		if left > 1 && mu.TryLock() {
			if awaitParkedOrEnd(p) {
				harness.Pause(left)
				unlock()
				left--
				overtakings++
			} else {
				mu.Unlock()
			}
		}
		p.AwaitEnd()
	}
	p.Stop()
	harness.Assert(overtakings > 0)
}

// awaitParkedOrEnd returns whether the partner waits for a lock; if not, its round has ended.
func awaitParkedOrEnd(p *harness.Partner) (isParked bool) {
	harness.Poll(func() bool {
		isParked = p.IsIn(lockStates)
		return isParked || p.HasEnded()
	})
	return isParked
}

// lockStates are the states in which a goroutine waits for a lock, not for a Cond.
var lockStates = []string{
	"semacquire", "sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock",
}

// condMutex: the goroutine that the Cond wakes must wait for the mutex.
func condMutex(n int) {
	var mu sync.Mutex
	cond := sync.NewCond(&mu)
	p := harness.NewPartner(func() {
		mu.Lock()
		cond.Wait()
		mu.Unlock()
	})
	for i := 0; i < n; i++ {
		p.Begin()
		p.AwaitParked()
		mu.Lock()
		cond.Broadcast()
		p.Await(lockStates...)
		harness.Pause(i)
		mu.Unlock()
		p.AwaitEnd()
	}
	p.Stop()
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

// A slowWriter does something else in the middle of the first Write of each round.
type slowWriter struct{ during func() }

func (w *slowWriter) Write(text []byte) (int, error) {
	if during := w.during; during != nil {
		w.during = nil
		during()
	}
	return io.Discard.Write(text)
}

// logContended: a mutex of the standard library, which the library releases.
func logContended(n int) {
	writer := &slowWriter{}
	logger := log.New(writer, "", 0)
	p := harness.NewPartner(func() { logger.Print("second") })
	for i := 0; i < n; i++ {
		writer.during = func() {
			p.Begin()
			p.AwaitParked()
			harness.Pause(i)
		}
		logger.Print("first")
		p.AwaitEnd()
	}
	p.Stop()
}

func rwReaderBehindWriter(n int) {
	var mu sync.RWMutex
	harness.Rounds(n, mu.Lock, passer(mu.RLocker()), func() { mu.Unlock() })
}

func rwWriterBehindReader(n int) {
	var mu sync.RWMutex
	harness.Rounds(n, mu.RLock, passer(&mu), func() { mu.RUnlock() })
}

func rwWriterBehindWriter(n int) {
	var mu sync.RWMutex
	harness.Rounds(n, mu.Lock, passer(&mu), func() { mu.Unlock() })
}

// rwWriterBehindReaders: only the last of three readers releases the writer.
func rwWriterBehindReaders(n int) {
	var mu sync.RWMutex
	three := func(f func()) func() {
		return func() {
			for i := 0; i < 3; i++ {
				f()
			}
		}
	}
	harness.Rounds(n, three(mu.RLock), passer(&mu), three(func() { mu.RUnlock() }))
}

// rwRelay: a reader and a writer wait for a writer, which releases both, each on a semaphore of
// its own. The second writer then waits for the reader.
func rwRelay(n int) {
	var mu sync.RWMutex
	hold := make(chan bool, 1)
	reader := harness.NewPartner(func() {
		mu.RLock()
		harness.Poll(func() bool { return len(hold) == 1 })
		<-hold
		mu.RUnlock()
	})
	writer := harness.NewPartner(passer(&mu))
	for i := 0; i < n/3; i++ {
		mu.Lock()
		reader.Begin()
		reader.AwaitParked()
		writer.Begin()
		writer.AwaitParked()
		harness.Pause(i)
		mu.Unlock()
		writer.AwaitParked()
		harness.Pause(i)
		hold <- true
		reader.AwaitEnd()
		writer.AwaitEnd()
	}
	reader.Stop()
	writer.Stop()
}

func rwTryLocked(n int) {
	var mu sync.RWMutex
	harness.Rounds(n, func() { harness.Assert(mu.TryLock()) }, passer(mu.RLocker()), func() { mu.Unlock() })
}

func rwTryRLocked(n int) {
	var mu sync.RWMutex
	harness.Rounds(n, func() { harness.Assert(mu.TryRLock()) }, passer(&mu), func() { mu.RUnlock() })
}

func rwDeferred(n int) {
	var mu sync.RWMutex
	harness.Rounds(n, mu.RLock, passer(&mu), func() { defer mu.RUnlock() })
}
