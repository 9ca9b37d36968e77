//go:build go1.25

package main

import "sync/atomic"

// runCrowds makes two threads sleep for a lock, and then five, while another one holds it; then
// each of them holds it in its turn, and the rest sleeps on.
func runCrowds(times int) {
	for range times {
		meet(2, "firstOf2", firstOf2, "nextOf2", nextOf2)
		meet(5, "firstOf5", firstOf5, "nextOf5", nextOf5)
	}
}

func meet(waiters int, firstName string, first func(*mutex), nextName string, next func(*mutex)) {
	var mu mutex
	var got atomic.Int32
	var all crew
	starts := make([]int64, waiters)
	releases := make([]int64, waiters+1)
	all.start(waiters, func(i int) {
		starts[i] = nanotime()
		lock(&mu)
		number := got.Add(1)
		usleep(holdMicros)
		releases[number] = nanotime()
		if number < int32(waiters) {
			next(&mu)
		} else {
			unlock(&mu)
		}
	})
	lock(&mu)
	var head uintptr
	for i := range waiters {
		all.letGo(i)
		head = awaitSleeper(&mu, head)
	}
	usleep(holdMicros)
	releases[0] = nanotime()
	first(&mu)
	all.wait()

	// A release is charged what all threads that sleep then have waited since the previous one.
	planned[firstName]++
	for _, start := range starts {
		truth[firstName] += releases[0] - start
	}
	for number := 1; number < waiters; number++ {
		planned[nextName]++
		truth[nextName] += int64(waiters-number) * (releases[number] - releases[number-1])
	}
}

// runFirstSleeps releases new locks just as the first thread is about to sleep for them, and all of
// them again later, while another thread sleeps.
func runFirstSleeps(times int) {
	mus := make([]mutex, times)
	for i := range mus {
		mu := &mus[i]
		meetOne(mu, func() { unlock(mu) })
	}
	usleep(laterMicros)
	for i := range mus {
		mu := &mus[i]
		start := meetOne(mu, func() { afterFirst(mu) })
		planned["afterFirst"]++
		truth["afterFirst"] += nanotime() - start
	}
}

const laterMicros = 100_000

// meetOne makes a thread sleep for the lock; `release` runs as soon as it is about to. Returns when
// the thread was let go.
func meetOne(mu *mutex, release func()) int64 {
	var one crew
	one.start(1, func(int) {
		lock(mu)
		unlock(mu)
	})
	lock(mu)
	since := nanotime()
	one.letGo(0)
	for atomic.LoadUintptr(&mu.key)&^mutexFlags == 0 {
	}
	release()
	one.wait()
	return since
}

//go:noinline
func afterFirst(mu *mutex) { unlock(mu) }

// runBarging releases a lock and takes it again before the woken thread can, which sleeps again in
// the same call. It has waited all the time.
func runBarging(times int) {
	for range times {
		var mu mutex
		var got atomic.Bool
		var one crew
		var since int64
		one.start(1, func(int) {
			since = nanotime()
			lock(&mu)
			got.Store(true)
			unlock(&mu)
		})
		lock(&mu)
		one.letGo(0)
		for range barges {
			awaitSleeper(&mu, 0)
			usleep(1)
			now := nanotime()
			barge(&mu)
			planned["barge"]++
			truth["barge"] += now - since
			since = now
			if got.Load() {
				break // the woken thread got the lock first
			}
		}
		unlock(&mu)
		one.wait()
	}
}

const barges = 20

//go:noinline
func barge(mu *mutex) {
	unlock(mu)
	lock(mu)
}

//go:noinline
func firstOf2(mu *mutex) { unlock(mu) }

//go:noinline
func nextOf2(mu *mutex) { unlock(mu) }

//go:noinline
func firstOf5(mu *mutex) { unlock(mu) }

//go:noinline
func nextOf5(mu *mutex) { unlock(mu) }
