package main

import (
	"bytes"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

// A crowd is several goroutines that queue up for locks. Where Go's own figures are wrong,
// arithmetic gives the truth: a release is charged the time that all goroutines in the queue of
// its semaphore have waited since they parked or since the last release, whichever is
// later.
type crowdOperation struct {
	name string
	run  func()
}

var crowdOperations = []crowdOperation{
	{"mutexOf2", func() { lineUp(&sync.Mutex{}, 2, 50*time.Millisecond, firstOf2, nextOf2) }},
	{"mutexOf5", func() { lineUp(&sync.Mutex{}, 5, 50*time.Millisecond, firstOf5, nextOf5) }},
	{"mutexOf20", func() { lineUp(&sync.Mutex{}, 20, 10*time.Millisecond, firstOf20, nextOf20) }},
	{"writersOf4", func() {
		lineUp(&sync.RWMutex{}, 4, 30*time.Millisecond, firstWriterOf4, nextWriterOf4)
	}},
	{"readersOf2", func() { readers(2, 50*time.Millisecond, readersOf2) }},
	{"readersOf30", func() { readers(30, 20*time.Millisecond, readersOf30) }},
	{"writersBehindReader", writersBehindReader},
	{"interleaved", interleaved},
	{"barged", bargedReader},
	{"hundred", hundred},
	{"manyRounds", manyRounds},
}

// The functions that release. The stacks of a crowd's releases have one of them each.
func firstOf2(l sync.Locker)            { l.Unlock() }
func nextOf2(l sync.Locker)             { l.Unlock() }
func firstOf5(l sync.Locker)            { l.Unlock() }
func nextOf5(l sync.Locker)             { l.Unlock() }
func firstOf20(l sync.Locker)           { l.Unlock() }
func nextOf20(l sync.Locker)            { l.Unlock() }
func firstWriterOf4(l sync.Locker)      { l.Unlock() }
func nextWriterOf4(l sync.Locker)       { l.Unlock() }
func readersOf2(l sync.Locker)          { l.Unlock() }
func readersOf30(l sync.Locker)         { l.Unlock() }
func readerBeforeWriters(l sync.Locker) { l.Unlock() }
func writerBeforeWriters(l sync.Locker) { l.Unlock() }
func oddRelease(l sync.Locker)          { l.Unlock() }
func evenRelease(l sync.Locker)         { l.Unlock() }
func bargedRelease(semaphore *uint32)   { semrelease(semaphore, false, 0) }
func bargedUnlock(l sync.Locker)        { l.Unlock() }
func firstOfHundred(l sync.Locker)      { l.Unlock() }
func nextOfHundred(l sync.Locker)       { l.Unlock() }
func oneOfMany(l sync.Locker)           { l.Unlock() }

// A tally sums up the events that a function's releases must have made.
type tally struct{ count, delay, square atomic.Int64 }

var tallies = map[string]*tally{}

func tallyOf(function string) *tally {
	if tallies[function] == nil {
		tallies[function] = &tally{}
	}
	return tallies[function]
}

// nameOf gives the name of a function of package main, without the package.
func nameOf(function any) string {
	name := runtime.FuncForPC(reflect.ValueOf(function).Pointer()).Name()
	return strings.TrimPrefix(name, "main.")
}

func (t *tally) add(events int, delay time.Duration) {
	t.count.Add(int64(events))
	t.delay.Add(int64(delay))
	t.square.Add(int64(delay) * int64(delay))
}

func truths() map[string]any {
	all := map[string]any{}
	for function, t := range tallies {
		all[function] = map[string]int64{
			"count": t.count.Load(), "delay_ns": t.delay.Load(), "square_ns2": t.square.Load(),
		}
	}
	return all
}

// A queue knows since when each goroutine waits for one semaphore. It needs no lock: main lets
// goroutines come one by one, and only the holder of the lock releases it.
type queue struct{ since []time.Time }

func (q *queue) come() { q.since = append(q.since, time.Now()) }

// charge is called just before a release that wakes so many goroutines. It returns how long all
// goroutines in the queue have waited since they parked or since the last release.
func (q *queue) charge(woken int) time.Duration {
	now := time.Now()
	var total time.Duration
	for i := range q.since {
		total += now.Sub(q.since[i])
		q.since[i] = now
	}
	q.since = q.since[woken:]
	return total
}

func runCrowds(chosen *regexp.Regexp) {
	for _, crowd := range crowdOperations {
		if chosen.MatchString(crowd.name) {
			crowd.run()
		}
	}
}

// arrive makes goroutines park, one after the other.
func arrive(n int, block func()) []*harness.Partner {
	var partners []*harness.Partner
	for i := 0; i < n; i++ {
		p := harness.NewPartner(block)
		p.Begin()
		p.AwaitParked()
		partners = append(partners, p)
	}
	return partners
}

func depart(partners []*harness.Partner) {
	for _, p := range partners {
		p.AwaitEnd()
		p.Stop()
	}
}

// lineUp: n goroutines wait for one lock. Main holds it for a time, then each of them does.
func lineUp(l sync.Locker, n int, hold time.Duration, first, next func(sync.Locker)) {
	q := &queue{}
	firsts, nexts := tallyOf(nameOf(first)), tallyOf(nameOf(next))
	l.Lock()
	partners := arrive(n, func() {
		q.come()
		l.Lock()
		time.Sleep(hold)
		if len(q.since) > 0 {
			nexts.add(1, q.charge(1))
		}
		next(l)
	})
	time.Sleep(hold)
	firsts.add(1, q.charge(1))
	first(l)
	depart(partners)
}

// readers: n readers wait for a writer, whose Unlock releases all of them.
func readers(n int, hold time.Duration, release func(sync.Locker)) {
	mu, q := &sync.RWMutex{}, &queue{}
	mu.Lock()
	partners := arrive(n, func() {
		q.come()
		mu.RLock()
		mu.RUnlock()
	})
	time.Sleep(hold)
	tallyOf(nameOf(release)).add(n, q.charge(n))
	release(mu)
	depart(partners)
}

// writersBehindReader: the first of four writers waits for the reader, the others for the first.
func writersBehindReader() {
	mu, behindReader, behindWriter := &sync.RWMutex{}, &queue{}, &queue{}
	reader, writer := tallyOf(nameOf(readerBeforeWriters)), tallyOf(nameOf(writerBeforeWriters))
	const hold = 30 * time.Millisecond
	come := behindReader.come
	mu.RLock()
	block := func() {
		come()
		mu.Lock()
		time.Sleep(hold)
		if len(behindWriter.since) > 0 {
			writer.add(1, behindWriter.charge(1))
		}
		writerBeforeWriters(mu)
	}
	partners := arrive(1, block)
	come = behindWriter.come
	partners = append(partners, arrive(3, block)...)
	time.Sleep(hold)
	reader.add(1, behindReader.charge(1))
	readerBeforeWriters(mu.RLocker())
	depart(partners)
}

// interleaved: main releases two locks in turns.
func interleaved() {
	const hold = 40 * time.Millisecond
	releases := [...]func(sync.Locker){evenRelease, oddRelease}
	var locks [2]sync.Mutex
	var queues [2]queue
	var partners []*harness.Partner
	for i := range locks {
		mu, q, release := &locks[i], &queues[i], releases[i]
		charged := tallyOf(nameOf(release))
		mu.Lock()
		partners = append(partners, arrive(3, func() {
			q.come()
			mu.Lock()
			time.Sleep(hold)
			if len(q.since) > 0 {
				charged.add(1, q.charge(1))
			}
			release(mu)
		})...)
	}
	for i := range locks {
		time.Sleep(hold / 2)
		tallyOf(nameOf(releases[i])).add(1, queues[i].charge(1))
		releases[i](&locks[i])
	}
	depart(partners)
}

// bargedReader: main takes the semaphore before a woken reader can, so that it parks again inside
// the same RLock, three times over. The third word of an RWMutex is the readers' semaphore.
func bargedReader() {
	const hold = 20 * time.Millisecond
	mu, q := &sync.RWMutex{}, &queue{}
	unlocks, releases := tallyOf(nameOf(bargedUnlock)), tallyOf(nameOf(bargedRelease))
	semaphore := &(*[6]uint32)(unsafe.Pointer(mu))[3]
	p := harness.NewPartner(func() {
		mu.RLock()
		mu.RUnlock()
	})
	mu.Lock()
	p.Begin()
	q.come()
	p.AwaitParked()
	time.Sleep(hold)
	unlocks.add(1, q.charge(0))
	bargedUnlock(mu)
	for i := 0; i < 3 && atomic.CompareAndSwapUint32(semaphore, 1, 0); i++ {
		p.AwaitParked()
		time.Sleep(hold)
		releases.add(1, q.charge(0))
		bargedRelease(semaphore)
	}
	p.AwaitEnd()
	p.Stop()
}

// hundred does what Go's own TestMutexProfile measures: a hundred goroutines wait for one mutex,
// which main holds for 100 ms more; each of them releases it at once.
func hundred() {
	const size, hold = 100, 100 * time.Millisecond
	mu, q := &sync.Mutex{}, &queue{since: make([]time.Time, size)}
	firsts, nexts := tallyOf(nameOf(firstOfHundred)), tallyOf(nameOf(nextOfHundred))
	var partners []*harness.Partner
	mu.Lock()
	for i := 0; i < size; i++ {
		came := &q.since[i]
		partners = append(partners, harness.NewPartner(func() {
			*came = time.Now()
			mu.Lock()
			if len(q.since) > 0 {
				nexts.add(1, q.charge(1))
			}
			nextOfHundred(mu)
		}))
	}
	for _, p := range partners {
		p.Begin()
	}
	harness.Poll(func() bool { return numberInStates(lockStates) == size })
	time.Sleep(hold)
	firsts.add(1, q.charge(1))
	firstOfHundred(mu)
	depart(partners)
}

// numberInStates counts goroutines; only main calls it.
func numberInStates(states []string) int {
	text := harness.Traceback()
	number := 0
	for _, state := range states {
		number += bytes.Count(text, []byte("["+state+"]:"))
	}
	return number
}

// manyRounds: one waiter at a time, often; for sampling.
func manyRounds() {
	const rounds = 4000
	mu, q := &sync.Mutex{}, &queue{}
	releases := tallyOf(nameOf(oneOfMany))
	p := harness.NewPartner(func() {
		q.come()
		mu.Lock()
		mu.Unlock()
	})
	for i := 0; i < rounds; i++ {
		mu.Lock()
		p.Begin()
		p.AwaitParked()
		harness.Pause(i)
		releases.add(1, q.charge(1))
		oneOfMany(mu)
		p.AwaitEnd()
	}
	p.Stop()
}
