//go:build go1.18

package main

import (
	"sync"

	"ebpfprof.test/harness"
)

var genericOperations = []operation{
	{"genericFunction", 3 * 7, genericFunction},
	{"genericMethod", 2 * 29, genericMethod},
}

//go:noinline
func receive[T any](c chan T) T {
	return <-c
}

func genericFunction(n int) {
	numbers, texts, pairs := make(chan int), make(chan string), make(chan [2]float64)
	harness.Rounds(n/3, nil, func() { receive(numbers) }, func() { numbers <- 1 })
	harness.Rounds(n/3, nil, func() { receive(texts) }, func() { texts <- "" })
	harness.Rounds(n/3, nil, func() { receive(pairs) }, func() { pairs <- [2]float64{} })
}

type stream[K comparable, V any] struct {
	mu    sync.Mutex
	items chan V
	seen  map[K]int
}

//go:noinline
func (s *stream[K, V]) next(key K) V {
	s.mu.Lock()
	s.seen[key]++
	s.mu.Unlock()
	return <-s.items
}

func genericMethod(n int) {
	a := &stream[string, int]{items: make(chan int), seen: map[string]int{}}
	b := &stream[int, *int]{items: make(chan *int), seen: map[int]int{}}
	harness.Rounds(n/2, nil, func() { a.next("a") }, func() { a.items <- 1 })
	harness.Rounds(n/2, nil, func() { b.next(2) }, func() { b.items <- nil })
}
