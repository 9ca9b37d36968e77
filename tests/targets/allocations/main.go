// Allocations keeps no memory profile: nothing in it reads one, so the linker leaves it out. It
// allocates objects of known sizes from known stacks, and counts them itself.
//
// Commands, a line each; each is answered by one line:
//
//	turns N     N objects each of first and second, of one size, in turn; "done"
//	thirds N    N objects of first, and three times as many of second, one to three; "done"
//	mix N       N rounds of objects of all sizes, and N/10 goroutines; "done"
//	spread N    N objects from each of 256 stacks; "done"
//	keep N      keeps N objects each of small, medium and large, "done"
//	drop        drops every third of these, "done"
//	reuse N     N objects that nobody keeps, of the sizes of those; "done"
//	gc          collects garbage, until all is swept; "done"
//	work N      N objects from four stacks, by chance; how many of each: "counts A B C D"
//	collect on  collects garbage all the time; "done"
//	await N     waits until N more collections have ended; "done"
package main

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"ebpfprof.test/harness"
)

type node struct {
	next *node
	data [7]int
}

type header struct {
	next *header
	data [128]int
}

var (
	bytes   [64][]byte
	nodes   [64]*node
	headers [64]*header
	numbers [64]*int64
	giant   []byte
	smalls  = make([]*node, 0, 1<<17)
	mediums = make([]*header, 0, 1<<17)
	larges  = make([][]byte, 0, 1<<10)
	counts  [4]int64
	cycles  atomic.Int64
)

//go:noinline
func first(i int) { bytes[i&63] = make([]byte, 64) }

//go:noinline
func second(i int) { bytes[i&63] = make([]byte, 64) }

//go:noinline
func withPointers(i int) { nodes[i&63] = new(node) }

//go:noinline
func withHeader(i int) { headers[i&63] = new(header) }

//go:noinline
func tiny(i int) { numbers[i&63] = new(int64) }

//go:noinline
func medium(i int) { bytes[i&63] = make([]byte, 3000) }

//go:noinline
func large() { giant = make([]byte, 100<<10) }

//go:noinline
func goroutine() {
	done := make(chan bool)
	go func() { done <- true }()
	<-done
}

// A different stack for each number: a bit decides which of two calls is made at each level.
//
//go:noinline
func spread(number, levels, i int) {
	if levels == 0 {
		second(i)
		return
	}
	if number&1 == 0 {
		spread(number>>1, levels-1, i)
	} else {
		spread(number>>1, levels-1, i)
	}
}

//go:noinline
func keepSmall() { smalls = append(smalls, new(node)) }

//go:noinline
func keepMedium() { mediums = append(mediums, new(header)) }

//go:noinline
func keepLarge() { larges = append(larges, make([]byte, 100<<10)) }

// work allocates; which of the four stacks comes next, chance decides.
func work(objects int) {
	state := uint64(88172645463325252)
	for i := 0; i < objects; i++ {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		switch draw := state >> 32 % 16; {
		case draw < 8:
			counts[0]++
			first(i)
		case draw < 12:
			counts[1]++
			second(i)
		case draw < 15:
			counts[2]++
			withPointers(i)
		default:
			counts[3]++
			medium(i)
		}
	}
}

func collect() {
	for {
		runtime.GC()
		cycles.Add(1)
	}
}

func main() {
	harness.Ready()
	for harness.Next() {
		words, count := harness.Words(), 0
		if len(words) > 1 && words[1] != "on" {
			count = harness.Number(words[1])
		}
		switch words[0] {
		case "turns":
			for i := 0; i < count; i++ {
				first(i)
				second(i)
			}
		case "thirds":
			for i := 0; i < count; i++ {
				first(i)
				second(i)
				second(i)
				second(i)
			}
		case "mix":
			for i := 0; i < count; i++ {
				first(i)
				withPointers(i)
				withHeader(i)
				tiny(i)
				medium(i)
				if i%10 == 0 {
					large()
					goroutine()
				}
			}
		case "spread":
			for i := 0; i < count; i++ {
				for number := 0; number < 256; number++ {
					spread(number, 8, i)
				}
			}
		case "keep":
			for i := 0; i < count; i++ {
				keepSmall()
				keepMedium()
				if i%100 == 0 {
					keepLarge()
				}
			}
		case "drop":
			for i := range smalls {
				if i%3 == 0 {
					smalls[i] = nil
				}
			}
			for i := range mediums {
				if i%3 == 0 {
					mediums[i] = nil
				}
			}
			for i := range larges {
				if i%3 == 0 {
					larges[i] = nil
				}
			}
		case "reuse":
			for i := 0; i < count; i++ {
				withPointers(i)
				withHeader(i)
			}
		case "gc":
			runtime.GC()
		case "work":
			work(count)
			fmt.Println("counts", counts[0], counts[1], counts[2], counts[3])
			continue
		case "await":
			until := cycles.Load() + int64(count)
			harness.Poll(func() bool { return cycles.Load() >= until })
		case "collect":
			go collect()
		}
		fmt.Println("done")
	}
}
