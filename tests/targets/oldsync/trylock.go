// Package sync has the methods of sync.Mutex and sync.RWMutex that Go 1.17 lacks.
// tests/toolchains.py adds this file to that package when it builds with it; it is no program.
package sync

import "sync/atomic"

// TryLock is as in Go 1.18, without the race detector.
func (m *Mutex) TryLock() bool {
	old := m.state
	if old&(mutexLocked|mutexStarving) != 0 {
		return false
	}
	return atomic.CompareAndSwapInt32(&m.state, old, old|mutexLocked)
}

// TryLock is as in Go 1.18, without the race detector.
func (rw *RWMutex) TryLock() bool {
	if !rw.w.TryLock() {
		return false
	}
	if !atomic.CompareAndSwapInt32(&rw.readerCount, 0, -rwmutexMaxReaders) {
		rw.w.Unlock()
		return false
	}
	return true
}

// TryRLock is as in Go 1.18, without the race detector.
func (rw *RWMutex) TryRLock() bool {
	for {
		c := atomic.LoadInt32(&rw.readerCount)
		if c < 0 {
			return false
		}
		if atomic.CompareAndSwapInt32(&rw.readerCount, c, c+1) {
			return true
		}
	}
}
