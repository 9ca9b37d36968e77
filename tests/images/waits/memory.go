package main

import (
	"runtime"
	"sync/atomic"
)

type node struct {
	next  *node
	value int
}

type record struct {
	key  string
	rest [10]*node
}

var (
	_     = everyAllocation()
	nodes *node
	kept  []*record
	large [][]int64
	plain []byte
	index []*node
	bound [][]byte
)

// everyAllocation makes the memory profile exact, before main begins.
func everyAllocation() int {
	runtime.MemProfileRate = 1
	return 0
}

//go:noinline
func makeNodes(count int) {
	for i := 0; i < count; i++ {
		nodes = &node{nodes, i}
	}
}

//go:noinline
func makeRecords(count int) {
	for i := 0; i < count; i++ {
		kept = append(kept, &record{key: "key"})
	}
}

//go:noinline
func makeLarge() {
	large = append(large, make([]int64, 1<<15), make([]int64, 1<<16))
	plain = make([]byte, 100<<10)
	index = make([]*node, 10000)
}

//go:noinline
func makeGarbage(count int) {
	for i := 0; i < count; i++ {
		bound = [][]byte{make([]byte, 2000)}
	}
	bound = nil
}

// keepMemory allocates objects of some types and sizes: some stay, some are garbage.
func keepMemory() {
	makeNodes(1000)
	makeRecords(100)
	makeLarge()
	makeGarbage(50)
	finalized := &node{}
	runtime.SetFinalizer(finalized, func(*node) { atomic.AddInt64(&finished, 1) })
	makeFinalized()
}

//go:noinline
func makeFinalized() {
	runtime.SetFinalizer(&record{}, func(*record) { atomic.AddInt64(&finished, 1) })
}
