//go:build go1.18

package main

import (
	"sync"

	"ebpfprof.test/harness"
)

var genericOperations = []operation{
	{"genericMethod", 3 * 23, genericMethod},
	{"genericFunction", 2 * 29, genericFunction},
}

type guarded[K comparable, V any] struct {
	mu    sync.Mutex
	items map[K]V
}

//go:noinline
func (g *guarded[K, V]) put(key K, value V) {
	g.items[key] = value
	g.mu.Unlock()
}

func genericMethod(n int) {
	a := &guarded[string, int]{items: map[string]int{}}
	b := &guarded[int, *int]{items: map[int]*int{}}
	c := &guarded[[2]float64, error]{items: map[[2]float64]error{}}
	harness.Rounds(n/3, a.mu.Lock, passer(&a.mu), func() { a.put("a", 1) })
	harness.Rounds(n/3, b.mu.Lock, passer(&b.mu), func() { b.put(1, nil) })
	harness.Rounds(n/3, c.mu.Lock, passer(&c.mu), func() { c.put([2]float64{}, nil) })
}

//go:noinline
func unlock[L sync.Locker](l L) { l.Unlock() }

func genericFunction(n int) {
	var mu sync.Mutex
	a := &account{}
	harness.Rounds(n/2, mu.Lock, passer(&mu), func() { unlock(&mu) })
	harness.Rounds(n/2, a.Lock, passer(a), func() { unlock[sync.Locker](a) })
}
