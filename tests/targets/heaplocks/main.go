// Heaplocks has locks on the heap, in objects that can be taken for others. It prints where they
// lie, and which function locks each:
//
//	lock ADDRESS PC KIND NAME   the return address of a call in the function that locks it
//
// NAME is the name that a profiler without DWARF must find; with a "?" behind where it needs the types
// that the runtime keeps of large objects; "-" where it can't be sure.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"ebpfprof.test/harness"
)

func note(lock unsafe.Pointer, kind, name string) {
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	fmt.Printf("lock %p %#x %s %s\n", lock, pcs[0], kind, name)
}

// Its method locks its own lock: the code says where in the receiver.
type cache struct {
	prices map[string]int
	mu     sync.Mutex
}

//go:noinline
func (c *cache) get() {
	c.mu.Lock()
	note(unsafe.Pointer(&c.mu), "sync.Mutex", "main.cache.mu")
	c.mu.Unlock()
}

//go:noinline
func (c *cache) deferred(depth int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	note(unsafe.Pointer(&c.mu), "sync.Mutex", "main.cache.mu")
	return len(c.prices) + depth
}

// Two types of one size, with a lock at one offset, and functions that are methods of neither.
type left struct {
	id   *int
	mu   sync.Mutex
	rest [5]int
}

type right struct {
	id   *int
	mu   sync.Mutex
	rest [5]int
}

//go:noinline
func lockLeft(l *left) {
	l.mu.Lock()
	note(unsafe.Pointer(&l.mu), "sync.Mutex", "-")
	l.mu.Unlock()
}

// A method that locks the lock of another type that looks like its own.
//
//go:noinline
func (r *right) lockOther(l *left) {
	l.mu.Lock()
	note(unsafe.Pointer(&l.mu), "sync.Mutex", "-")
	l.mu.Unlock()
}

// A method that locks what it was given, at the offset 0 of something.
type helper struct {
	mu   sync.Mutex
	rest [9]*int
}

//go:noinline
func (h *helper) lockAny(mu *sync.Mutex) {
	mu.Lock()
	note(unsafe.Pointer(mu), "sync.Mutex", "-")
	mu.Unlock()
}

type helped struct {
	mu   sync.Mutex
	rest [9]*int
}

// The receiver changes before it is locked.
type chain struct {
	mu   sync.RWMutex
	next *chain
	rest [100]*int
}

//go:noinline
func (c *chain) last() {
	for c.next != nil {
		c = c.next
	}
	c.mu.RLock()
	note(unsafe.Pointer(&c.mu), "sync.RWMutex", "main.chain.mu?")
	c.mu.RUnlock()
}

// One of 512 bytes and more with pointers has its type with it, from Go 1.22 on.
type server struct {
	name   string
	shards [16]struct {
		mu    sync.RWMutex
		items map[string]int
	}
}

//go:noinline
func lockShard(s *server, at int, name string) {
	s.shards[at].mu.Lock()
	note(unsafe.Pointer(&s.shards[at].mu), "sync.RWMutex", name)
	s.shards[at].mu.Unlock()
}

// Such a type as the elements of a slice, in a span of their own.
type page struct {
	data [4000]*int
	mu   sync.Mutex
}

//go:noinline
func (p *page) touch() {
	p.mu.Lock()
	note(unsafe.Pointer(&p.mu), "sync.Mutex", "main.page.mu")
	p.mu.Unlock()
}

//go:noinline
func touchOne(p *page, name string) {
	p.mu.Lock()
	note(unsafe.Pointer(&p.mu), "sync.Mutex", name)
	p.mu.Unlock()
}

type box[T any] struct {
	value T
	mu    sync.Mutex
}

//go:noinline
func (b *box[T]) put(name string) {
	b.mu.Lock()
	note(unsafe.Pointer(&b.mu), "sync.Mutex", name)
	b.mu.Unlock()
}

// A variable of a function, and elements of a slice of nothing but locks.

//go:noinline
func lockVariable(mu *sync.Mutex) {
	mu.Lock()
	note(unsafe.Pointer(mu), "sync.Mutex", "-")
	mu.Unlock()
}

var kept []interface{}

func main() {
	c := &cache{}
	c.get()
	c.deferred(1)
	l, r := &left{}, &right{}
	lockLeft(l)
	r.lockOther(l)
	h, other := &helper{}, &helped{}
	h.lockAny(&h.mu)
	h.lockAny(&other.mu)
	first := &chain{next: &chain{}}
	first.last()
	s := &server{}
	lockShard(s, 3, "main.server.shards[].mu?")
	pages := make([]page, 3)
	pages[1].touch()
	touchOne(&pages[2], "main.page.mu?")
	numbers, texts := &box[int]{}, &box[string]{}
	numbers.put("main.box[...].mu?")
	texts.put("main.box[...].mu?")
	mu, many := new(sync.Mutex), make([]sync.Mutex, 12)
	lockVariable(mu)
	lockVariable(&many[5])
	kept = append(kept, c, l, r, h, other, first, s, pages, numbers, texts, mu, many)
	harness.Ready()
	harness.AwaitEnd()
	runtime.KeepAlive(kept)
}
