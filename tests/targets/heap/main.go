// Heap allocates objects of known sizes from known stacks, keeps some of them, and writes Go's own
// memory profiles. Its argument is runtime.MemProfileRate: how many allocations Go samples.
//
// Commands, a line each; each is answered by "done":
//
//	make N        N rounds of all kinds of objects; a third of them is kept
//	drop          keep none of them any longer
//	gc            collect garbage, twice, so that Go publishes all of before
//	own FOLDER    write heap.pb.gz, allocs.pb.gz and heap.txt
//	churn on|off  allocate and collect without end, in the background
//	buckets N     allocate from N different stacks, each once
//	leak N        keep N objects of 4,096 bytes, each time from the same stack
//	turn          replace what a cache of 64 objects keeps
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync/atomic"

	"ebpfprof.test/harness"
)

type node struct {
	next *node
	data [5]int
}

type large struct{ data [100 << 10]byte }

var (
	kept   []any
	bytes  []byte
	churns atomic.Int32
	leaked = make([]*[512]int, 0, 1<<16)
	cache  [64]*[512]int
	name   string
)

func keep(round int, object any) {
	if round%3 == 0 {
		kept = append(kept, object)
	}
}

//go:noinline
func smallPointers(round int) { keep(round, &node{}) }

// Inlined: its allocation belongs to a stack with a call that has no frame.
func inlined(round int) any { return &[40]*int{} }

//go:noinline
func viaInlined(round int) { keep(round, inlined(round)) }

//go:noinline
func slices(round int) { keep(round, make([]byte, 3000)) }

//go:noinline
func larges(round int) { keep(round, &large{}) }

//go:noinline
func grown(round int) {
	var list []int
	for i := 0; i < 100; i++ {
		list = append(list, i)
	}
	keep(round, list)
}

//go:noinline
func text(round int) { keep(round, fmt.Sprintf("number %d of a series", round)) }

//go:noinline
func maps(round int) {
	table := map[int]*node{}
	for i := 0; i < 20; i++ {
		table[i] = &node{}
	}
	keep(round, table)
}

type shape interface{ make(round int) }
type square struct{ side int }

// Called by its interface with a pointer: by way of a wrapper.
//
//go:noinline
func (s square) make(round int) { keep(round, new([64]byte)) }

//go:noinline
func deep(levels, round int) {
	if levels == 0 {
		smallPointers(round)
		return
	}
	deep(levels-1, round)
}

//go:noinline
func leak() { leaked = append(leaked, new([512]int)) }

//go:noinline
func turn() {
	for i := range cache {
		cache[i] = new([512]int)
	}
}

//go:noinline
func work(rounds int) {
	shapes := []shape{&square{}, genericShape}
	for round := 0; round < rounds; round++ {
		smallPointers(round)
		viaInlined(round)
		slices(round)
		grown(round)
		text(round)
		maps(round)
		deep(20, round)
		deep(200, round)
		named()
		for _, each := range shapes {
			each.make(round)
		}
		func() { keep(round, new([33]int)) }()
		if round%10 == 0 {
			larges(round)
		}
	}
}

// At the instruction behind the call of nameOf, the code of CallersFrames begins: Go's profile takes
// nameOf for a part of the runtime.
//
//go:noinline
func named() { name = nameOf(uintptr(len(kept))) }

func nameOf(pc uintptr) string {
	pcs := []uintptr{pc}
	frames := runtime.CallersFrames(pcs)
	frame, _ := frames.Next()
	return frame.Function
}

// A different stack for each number: a bit decides which of two calls is made at each level.
//
//go:noinline
func distinct(number, levels int) {
	if levels == 0 {
		bytes = make([]byte, 48)
		return
	}
	if number&1 == 0 {
		distinct(number>>1, levels-1)
	} else {
		distinct(number>>1, levels-1)
	}
}

func churn() {
	for {
		if churns.Load() == 0 {
			runtime.Gosched()
			continue
		}
		work(3)
		kept = nil
		runtime.GC()
	}
}

func own(folder string) {
	for _, each := range []struct {
		profile, file string
		debug         int
	}{{"heap", "heap.pb.gz", 0}, {"allocs", "allocs.pb.gz", 0}, {"heap", "heap.txt", 1}} {
		file, err := os.Create(filepath.Join(folder, each.file))
		harness.Check(err)
		harness.Check(pprof.Lookup(each.profile).WriteTo(file, each.debug))
		harness.Check(file.Close())
	}
}

func main() {
	if len(os.Args) > 1 {
		runtime.MemProfileRate = harness.Number(os.Args[1])
	}
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "make":
			work(harness.Number(words[1]))
		case "drop":
			kept = nil
		case "gc":
			runtime.GC()
			runtime.GC()
		case "own":
			own(words[1])
		case "churn":
			if churns.Swap(1) == 0 && words[1] == "on" {
				go churn()
			}
			if words[1] == "off" {
				churns.Store(0)
			}
		case "leak":
			for i := 0; i < harness.Number(words[1]); i++ {
				leak()
			}
		case "turn":
			turn()
		case "buckets":
			for i := 0; i < harness.Number(words[1]); i++ {
				distinct(i, 20)
			}
		}
		fmt.Println("done")
	}
}
