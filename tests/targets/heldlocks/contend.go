package main

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

const (
	rounds  = 4
	waiters = 3
)

// A scene is one way to wait for one lock. In each round a goroutine calls hold, and while it has
// the lock, three others call wait, one after the other, and park. Then all of them have the lock
// in turn, in this order: the first and the second for `length`, the others for two and three
// times as long.
type scene struct {
	kind, name     string
	address        uintptr
	holder, waiter string // functions
	hold, wait     func(*turn)
	length         time.Duration
	// Whether they wait for the release of the holder, not each for the one before.
	atOnce bool
	// Which of the waiters (0, 1, 2) wake while another one still waits for the same semaphore, and
	// will release that: bpf/waits/locks.h sees how long they had it.
	seen []int
}

// A turn is what a goroutine does in one round.
type turn struct {
	length    time.Duration
	id        int64 // of the goroutine, once that runs
	came      time.Time
	has       chan bool // closed when it has the lock
	mayGo     chan bool // closed when it may go on
	released  time.Time // just before it released the lock
	goneAgain chan bool
}

func newTurn(length time.Duration) *turn {
	return &turn{
		length: length, has: make(chan bool), mayGo: make(chan bool), goneAgain: make(chan bool),
	}
}

// arrive is called just before the goroutine locks.
func (t *turn) arrive() {
	id := harness.GoroutineID()
	t.came = time.Now()
	atomic.StoreInt64(&t.id, id)
}

// keep is called while the goroutine holds the lock, just before it unlocks.
func (t *turn) keep() {
	close(t.has)
	<-t.mayGo
	time.Sleep(t.length)
	t.released = time.Now()
}

type outcome struct {
	Kind     string         `json:"kind"`
	Name     string         `json:"name"`
	Address  uintptr        `json:"address"`
	Releases map[string]int `json:"releases"` // by function, with others waiting
	Waits    map[string]int `json:"waits"`    // by function
	Delay    time.Duration  `json:"delay_ns"` // of all waits
	Holds    int            `json:"holds"`    // those that a profiler can see
	Held     time.Duration  `json:"held_ns"`
}

func contend(all []*scene) []outcome {
	var outcomes []outcome
	for _, s := range all {
		sum := outcome{
			Kind: s.kind, Name: s.name, Address: s.address,
			Releases: map[string]int{}, Waits: map[string]int{},
		}
		for i := 0; i < rounds; i++ {
			s.round(&sum)
		}
		outcomes = append(outcomes, sum)
	}
	return outcomes
}

func (s *scene) round(sum *outcome) {
	first := newTurn(s.length)
	turns := []*turn{first}
	begin(first, s.hold)
	<-first.has
	for i := 0; i < waiters; i++ {
		t := newTurn(s.length * time.Duration(1+i))
		close(t.mayGo)
		begin(t, s.wait)
		t.awaitParked()
		turns = append(turns, t)
	}
	close(first.mayGo)
	for _, t := range turns {
		<-t.goneAgain
	}
	for i, t := range turns[1:] {
		before := turns[i]
		if s.atOnce {
			before = first
		}
		sum.Delay += before.released.Sub(t.came)
		sum.Waits[s.waiter]++
		if s.atOnce || i == 0 {
			sum.Releases[s.holder]++
		} else {
			sum.Releases[s.waiter]++
		}
	}
	for _, i := range s.seen {
		sum.Holds++
		sum.Held += turns[1+i].released.Sub(turns[i].released)
	}
}

// Package variables.

var global sync.Mutex

//go:noinline
func holdGlobal(t *turn) {
	global.Lock()
	t.keep()
	global.Unlock()
}

//go:noinline
func waitGlobal(t *turn) {
	t.arrive()
	global.Lock()
	t.keep()
	global.Unlock()
}

var registry struct {
	size int
	mu   sync.Mutex
}

//go:noinline
func holdRegistry(t *turn) {
	registry.mu.Lock()
	t.keep()
	registry.mu.Unlock()
}

//go:noinline
func waitRegistry(t *turn) {
	t.arrive()
	registry.mu.Lock()
	defer registry.mu.Unlock()
	t.keep()
}

// On the heap.

type cache struct {
	size      int
	mu, stats sync.Mutex
}

//go:noinline
func (c *cache) holdMu(t *turn) {
	c.mu.Lock()
	t.keep()
	c.mu.Unlock()
}

//go:noinline
func (c *cache) waitMu(t *turn) {
	t.arrive()
	c.mu.Lock()
	t.keep()
	c.mu.Unlock()
}

//go:noinline
func (c *cache) holdStats(t *turn) {
	c.stats.Lock()
	t.keep()
	c.stats.Unlock()
}

//go:noinline
func (c *cache) waitStats(t *turn) {
	t.arrive()
	c.stats.Lock()
	t.keep()
	c.stats.Unlock()
}

type session struct {
	mu sync.Mutex
	id int
}

//go:noinline
func (s *session) hold(t *turn) {
	s.mu.Lock()
	t.keep()
	s.mu.Unlock()
}

//go:noinline
func (s *session) wait(t *turn) {
	t.arrive()
	s.mu.Lock()
	t.keep()
	s.mu.Unlock()
}

type account struct {
	owner string
	sync.Mutex
}

//go:noinline
func (a *account) hold(t *turn) {
	a.Lock()
	t.keep()
	a.Unlock()
}

//go:noinline
func (a *account) wait(t *turn) {
	t.arrive()
	a.Lock()
	t.keep()
	a.Unlock()
}

type table struct {
	rows int
	rw   sync.RWMutex
}

//go:noinline
func (b *table) holdForWriters(t *turn) {
	b.rw.RLock()
	t.keep()
	b.rw.RUnlock()
}

//go:noinline
func (b *table) holdForReaders(t *turn) {
	b.rw.Lock()
	t.keep()
	b.rw.Unlock()
}

//go:noinline
func (b *table) holdWriting(t *turn) {
	b.rw.Lock()
	t.keep()
	b.rw.Unlock()
}

//go:noinline
func (b *table) writeBehindReader(t *turn) {
	t.arrive()
	b.rw.Lock()
	t.keep()
	b.rw.Unlock()
}

//go:noinline
func (b *table) writeBehindWriter(t *turn) {
	t.arrive()
	b.rw.Lock()
	t.keep()
	b.rw.Unlock()
}

//go:noinline
func (b *table) read(t *turn) {
	t.arrive()
	b.rw.RLock()
	t.keep()
	b.rw.RUnlock()
}

// It has a lock of its own, which is not the one that sync.Once has.
type setup struct {
	once sync.Once
	mu   sync.Mutex
}

//go:noinline
func (s *setup) hold(t *turn) {
	s.mu.Lock()
	s.once = sync.Once{}
	s.mu.Unlock()
	s.once.Do(t.keep)
}

//go:noinline
func (s *setup) wait(t *turn) {
	t.arrive()
	s.once.Do(nil)
	t.released = time.Now()
}

func scenes() []*scene {
	c, a, b, s := &cache{}, &account{}, &table{}, &setup{}
	first, second := &session{id: 1}, &session{id: 2}
	onceMutex := reflect.ValueOf(s).Elem().Field(0).FieldByName("m").UnsafeAddr()
	all := []*scene{
		{
			name: "main.global", address: uintptr(unsafe.Pointer(&global)),
			hold: holdGlobal, holder: "main.holdGlobal",
			wait: waitGlobal, waiter: "main.waitGlobal",
		},
		{
			name: "main.registry.mu", address: uintptr(unsafe.Pointer(&registry.mu)),
			hold: holdRegistry, holder: "main.holdRegistry",
			wait: waitRegistry, waiter: "main.waitRegistry",
		},
		// The functions could name either of the two.
		{
			name: "main.cache.{mu,stats}", address: uintptr(unsafe.Pointer(&c.mu)),
			hold: c.holdMu, holder: "main.(*cache).holdMu",
			wait: c.waitMu, waiter: "main.(*cache).waitMu",
		},
		{
			name: "main.cache.{mu,stats}", address: uintptr(unsafe.Pointer(&c.stats)),
			hold: c.holdStats, holder: "main.(*cache).holdStats",
			wait: c.waitStats, waiter: "main.(*cache).waitStats",
		},
		{
			name: "main.session.mu", address: uintptr(unsafe.Pointer(&first.mu)),
			hold: first.hold, holder: "main.(*session).hold",
			wait: first.wait, waiter: "main.(*session).wait",
		},
		{
			name: "main.session.mu", address: uintptr(unsafe.Pointer(&second.mu)),
			hold: second.hold, holder: "main.(*session).hold",
			wait: second.wait, waiter: "main.(*session).wait",
		},
		{
			name: "main.account.Mutex", address: uintptr(unsafe.Pointer(&a.Mutex)),
			hold: a.hold, holder: "main.(*account).hold",
			wait: a.wait, waiter: "main.(*account).wait",
		},
		{
			name: "sync.Once.m", address: onceMutex,
			hold: s.hold, holder: "main.(*setup).hold",
			wait: s.wait, waiter: "main.(*setup).wait",
		},
		{
			kind: "sync.RWMutex", name: "main.table.rw", address: uintptr(unsafe.Pointer(&b.rw)),
			hold: b.holdForWriters, holder: "main.(*table).holdForWriters",
			wait: b.writeBehindReader, waiter: "main.(*table).writeBehindReader",
			// The first one waits for the reader, the others for the first one.
			seen: []int{1},
		},
		{
			kind: "sync.RWMutex", name: "main.table.rw", address: uintptr(unsafe.Pointer(&b.rw)),
			hold: b.holdForReaders, holder: "main.(*table).holdForReaders",
			wait: b.read, waiter: "main.(*table).read",
			atOnce: true, seen: []int{},
		},
		{
			kind: "sync.RWMutex", name: "main.table.rw", address: uintptr(unsafe.Pointer(&b.rw)),
			hold: b.holdWriting, holder: "main.(*table).holdWriting",
			wait: b.writeBehindWriter, waiter: "main.(*table).writeBehindWriter",
		},
	}
	for i, each := range all {
		each.length = time.Duration(1500+250*i) * time.Microsecond
		if each.kind == "" {
			each.kind = "sync.Mutex"
		}
		if each.seen == nil {
			each.seen = []int{0, 1}
		}
	}
	return all
}
