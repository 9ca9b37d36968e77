// Package store holds locks that package main cannot reach by name, and some that it can.
package store

import "sync"

// Shard has a lock of its own.
type Shard struct {
	sync.RWMutex
	Values map[string]int
}

// Store has a lock that only this package can lock.
type Store struct {
	name   string
	mu     sync.Mutex
	Shards [4]Shard
}

// Shared is a lock of the package.
var Shared Store

// New returns an empty store.
func New(name string) *Store { return &Store{name: name} }

// Mu returns the address of the lock, for the test.
func (s *Store) Mu() *sync.Mutex { return &s.mu }

// Do calls note with the lock held.
//
//go:noinline
func (s *Store) Do(note func(kind, name string)) {
	s.mu.Lock()
	note("sync.Mutex", "ebpfprof.test/locks/store.Store.mu")
	s.mu.Unlock()
}

type hidden struct {
	count int
	sync.Mutex
}

// Outer has a lock that all packages can lock, in a field that no other package can name.
type Outer struct{ hidden }

// Only package main instantiates Guard.
type Guard[T any] struct {
	value T
	mu    sync.Mutex
}

// Set changes the value, and calls note with the lock held.
//
//go:noinline
func (g *Guard[T]) Set(value T, note func(kind, name string)) {
	g.mu.Lock()
	note("sync.Mutex", "ebpfprof.test/locks/store.Guard[...].mu")
	g.value = value
	g.mu.Unlock()
}

// Keeper has an unexported field of a type whose lock all packages could lock.
type Keeper struct{ shard *Shard }
