// Lengths has goroutines that wait for as long as a known distribution says, and logs how long each
// wait was: from just before the receive to just before the send that ends it. With -locked, it has
// groups of three goroutines that hold a lock for so long, and logs how long each hold was: from the
// release before it to its own.
//
// Protocol: it prints "ready PID". To each line "go" it does its waits and answers "done", to
// "go SHAPE WAITS" this number of waits of another shape; to "log"
// it prints a line of JSON, the lengths of all waits so far in nanoseconds; to "trace FILE" it
// begins an execution trace and answers "begun", to "end" it ends that and answers "ended". It ends
// when its input closes.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"runtime/trace"
	"strconv"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

const short = 300 * time.Microsecond

// A shape returns the length of wait number `number` of all.
type shape func(number int, random *rand.Rand) time.Duration

var shapes = map[string]shape{
	// Nine waits of ten are short, the tenth is a hundred times as long.
	"bimodal": func(_ int, random *rand.Rand) time.Duration {
		if random.Intn(10) == 0 {
			return 100 * short
		}
		return short
	},
	// Pareto's distribution, with a mean of six times the shortest.
	"tail": func(_ int, random *rand.Rand) time.Duration {
		length := float64(short) * math.Pow(1-random.Float64(), -1/1.2)
		return time.Duration(math.Min(length, float64(300*time.Millisecond)))
	},
	"short": func(int, *rand.Rand) time.Duration { return short },
	"long":  func(int, *rand.Rand) time.Duration { return 1000 * short },
	// One of ten thousand is a thousand times as long.
	"rare": func(number int, _ *rand.Rand) time.Duration {
		if number%10000 == 5000 {
			return 1000 * short
		}
		return short
	},
	// Nine of ten are so long that goroutines get a lock in the order in which they wait for it
	// (sync.Mutex, starvation mode: 1 ms); the tenth is ten times as long.
	"fair": func(_ int, random *rand.Rand) time.Duration {
		if random.Intn(10) == 0 {
			return 70 * short
		}
		return 7 * short
	},
}

func main() {
	name := flag.String("shape", "bimodal", "the distribution")
	pairs := flag.Int("pairs", 20, "goroutines that wait, each for one of its own")
	count := flag.Int("waits", 20000, "waits of all of them")
	locked := flag.Bool("locked", false, "they hold locks")
	flag.Parse()
	var mu sync.Mutex
	var lengths []int64
	harness.Ready()
	for round := int64(1); harness.Next(); round++ {
		switch words := harness.Words(); words[0] {
		case "log":
			harness.Say(json.Marshal(lengths))
			continue
		case "trace":
			file, err := os.Create(words[1])
			harness.Check(err)
			harness.Check(trace.Start(file))
			fmt.Println("begun")
			continue
		case "end":
			trace.Stop()
			fmt.Println("ended")
			continue
		}
		chosen, count := shapes[*name], *count
		if words := harness.Words(); len(words) > 1 {
			waits, err := strconv.Atoi(words[2])
			harness.Check(err)
			chosen, count = shapes[words[1]], waits
		}
		if *locked {
			lengths = append(lengths, hold(*pairs, count, chosen)...)
			fmt.Println("done")
			continue
		}
		var done sync.WaitGroup
		done.Add(*pairs)
		for pair := 0; pair < *pairs; pair++ {
			first, random := pair, rand.New(rand.NewSource(round*int64(*pairs)+int64(pair)))
			go func() {
				own := make([]int64, 0, count / *pairs)
				ticks := make(chan time.Time)
				go func() {
					for number := first; number < count; number += *pairs {
						time.Sleep(chosen(number, random))
						ticks <- time.Now()
					}
				}()
				for number := first; number < count; number += *pairs {
					own = append(own, wait(ticks))
				}
				mu.Lock()
				lengths = append(lengths, own...)
				mu.Unlock()
				done.Done()
			}()
		}
		done.Wait()
		fmt.Println("done")
	}
}

//go:noinline
func wait(ticks <-chan time.Time) int64 {
	began := time.Now()
	ended := <-ticks
	return int64(ended.Sub(began))
}

const holders = 3

// hold has groups of goroutines hold a lock each, as often as count says in all, and returns for how
// long that was.
func hold(groups, count int, chosen shape) []int64 {
	var done sync.WaitGroup
	all := make([]held, groups)
	for group := range all {
		own := &all[group]
		own.random = rand.New(rand.NewSource(int64(group)))
		for holder := 0; holder < holders; holder++ {
			done.Add(1)
			go func() {
				for number := 0; number < count/groups/holders; number++ {
					own.mu.Lock()
					time.Sleep(chosen(number, own.random))
					own.release()
				}
				done.Done()
			}()
		}
	}
	done.Wait()
	var lengths []int64
	for group := range all {
		lengths = append(lengths, all[group].lengths...)
	}
	return lengths
}

// Held is a lock, with the time from each release to the next.
type held struct {
	mu       sync.Mutex
	random   *rand.Rand
	released time.Time
	lengths  []int64
}

//go:noinline
func (h *held) release() {
	now := time.Now()
	if !h.released.IsZero() {
		h.lengths = append(h.lengths, int64(now.Sub(h.released)))
	}
	h.released = now
	h.mu.Unlock()
}
