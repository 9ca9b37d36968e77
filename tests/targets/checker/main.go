// Checker checks its own results for as long as it runs: numbers that goroutines hand on through
// channels, selects, locks and condition variables, and values on growing stacks.
//
// Arguments name additional work: "procs" changes GOMAXPROCS and returns memory to the kernel
// all the time, "spawn" starts processes of its own program (by vfork and exec), "spread" keeps
// deep stacks and checks their frames now and then, "hoard" allocates
// memory after the line "hoard", up to two gigabytes.
//
// Protocol: it prints "ready PID" and starts. To the line "check" it answers, after at least one
// more round of each kind of work, "ok ROUNDS" (all rounds since the start), or always
// "FAILED ..." after a wrong result or a round that does not end within two minutes.
// It ends when its input closes.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

// A machine under load, a debugger, paged-out memory: each may delay a round.
const deadline = 2 * time.Minute

// A job does one round of work and returns an error if a result is wrong.
type job struct {
	name  string
	round func(round int) error
}

var jobs = []job{
	{"channels", passThroughChannels},
	{"select", mergeBySelect},
	{"mutex", countUnderMutex},
	{"rwmutex", compareUnderRWMutex},
	{"cond", queueWithCond},
	{"stack", growStacks},
	{"sleep", sleepAndTime},
}

// By argument.
var more = map[string]job{
	"procs":  {"procs", changeProcs},
	"spawn":  {"spawn", askAnotherProcess},
	"hoard":  {"hoard", takeMemory},
	"spread": {"spread", waitBelowDeepStacks},
}

var (
	rounds  []atomic.Int64
	failure atomic.Value // string
)

func main() {
	for _, name := range os.Args[1:] {
		if name == "answer" {
			answer(os.Args[2])
			return
		}
		extra, known := more[name]
		if !known {
			fmt.Fprintf(os.Stderr, "there is no work called %q\n", name)
			os.Exit(2)
		}
		jobs = append(jobs, extra)
	}
	rounds = make([]atomic.Int64, len(jobs))
	for i, j := range jobs {
		go work(&rounds[i], j)
	}
	harness.Ready()
	for harness.Next() {
		switch harness.Command() {
		case "check":
			fmt.Println(verdict())
		case "hoard":
			hoards.Store(true)
		}
	}
}

func work(done *atomic.Int64, j job) {
	for round := 1; ; round++ {
		if err := j.round(round); err != nil {
			failure.CompareAndSwap(nil, fmt.Sprintf("%s, round %d: %v", j.name, round, err))
			return
		}
		done.Add(1)
		// A pause, so that a test can run several of these side by side.
		time.Sleep(500 * time.Microsecond)
	}
}

// verdict waits for a round of every job that begins after the call.
func verdict() string {
	until := time.Now().Add(deadline)
	var total int64
	for i := range rounds {
		// The current round may be past the point of interest: wait for the next.
		for before := rounds[i].Load(); rounds[i].Load() < before+2; {
			if text := failure.Load(); text != nil {
				return fmt.Sprint("FAILED ", text)
			}
			if time.Now().After(until) {
				return fmt.Sprintf("FAILED %s: no round ended within %v", jobs[i].name, deadline)
			}
			time.Sleep(time.Millisecond)
		}
	}
	for i := range rounds {
		total += rounds[i].Load()
	}
	return fmt.Sprint("ok ", total)
}

func expect(what string, got, want int) error {
	if got != want {
		return fmt.Errorf("%s is %d, not %d", what, got, want)
	}
	return nil
}

func sumTo(n int) int { return n * (n + 1) / 2 }

// passThroughChannels: a pipeline of three stages, unbuffered, buffered, closed at the end.
func passThroughChannels(round int) error {
	const count = 500
	first, second := make(chan int), make(chan int, 4)
	go func() {
		for i := 1; i <= count; i++ {
			first <- i
		}
		close(first)
	}()
	go func() {
		for v := range first {
			second <- v + round
		}
		close(second)
	}()
	sum, last := 0, round
	for v := range second {
		if v != last+1 {
			return fmt.Errorf("%d came after %d", v, last)
		}
		last = v
		sum += v
	}
	return expect("the sum", sum, sumTo(count)+count*round)
}

// mergeBySelect: three producers, one consumer, and a quit channel in all selects.
func mergeBySelect(int) error {
	const count, producers = 150, 3
	var inputs [producers]chan int
	quit := make(chan struct{})
	var ended sync.WaitGroup
	for p := range inputs {
		in := make(chan int)
		inputs[p] = in
		ended.Add(1)
		go func() {
			defer ended.Done()
			for i := 1; ; i++ {
				select {
				case in <- i:
				case <-quit:
					return
				}
			}
		}()
	}
	var got [producers]int
	var sums [producers]int
	for i := 0; i < count*producers; i++ {
		p, v := 0, 0
		select {
		case v = <-inputs[0]:
		case v = <-inputs[1]:
			p = 1
		case v = <-inputs[2]:
			p = 2
		}
		got[p]++
		sums[p] += v
	}
	close(quit)
	ended.Wait()
	for p := range inputs {
		if err := expect("a producer's sum", sums[p], sumTo(got[p])); err != nil {
			return err
		}
	}
	return nil
}

func countUnderMutex(int) error {
	const goroutines, count = 6, 200
	var mu sync.Mutex
	var ended sync.WaitGroup
	total, shadow := 0, 0
	for g := 0; g < goroutines; g++ {
		ended.Add(1)
		go func() {
			defer ended.Done()
			for i := 0; i < count; i++ {
				mu.Lock()
				total++
				if i%8 == 0 {
					runtime.Gosched()
				}
				shadow++
				mu.Unlock()
			}
		}()
	}
	ended.Wait()
	if err := expect("the counter", total, goroutines*count); err != nil {
		return err
	}
	return expect("the second counter", shadow, goroutines*count)
}

func compareUnderRWMutex(int) error {
	const readers, count = 4, 100
	var mu sync.RWMutex
	var ended sync.WaitGroup
	var torn atomic.Int64
	a, b := 0, 0
	ended.Add(readers)
	for r := 0; r < readers; r++ {
		go func() {
			defer ended.Done()
			for i := 0; i < count; i++ {
				mu.RLock()
				if a != b {
					torn.Add(1)
				}
				runtime.Gosched()
				mu.RUnlock()
			}
		}()
	}
	for i := 0; i < count; i++ {
		mu.Lock()
		a++
		runtime.Gosched()
		b++
		mu.Unlock()
	}
	ended.Wait()
	if err := expect("the number of torn reads", int(torn.Load()), 0); err != nil {
		return err
	}
	return expect("the writer's counter", a+b, 2*count)
}

// queueWithCond: a bounded queue with two producers and two consumers.
func queueWithCond(int) error {
	const count = 300
	var mu sync.Mutex
	changed := sync.NewCond(&mu)
	var queue []int
	var sum atomic.Int64
	var ended sync.WaitGroup
	ended.Add(4)
	for g := 0; g < 2; g++ {
		go func() {
			defer ended.Done()
			for i := 1; i <= count; i++ {
				mu.Lock()
				for len(queue) >= 3 {
					changed.Wait()
				}
				queue = append(queue, i)
				changed.Broadcast()
				mu.Unlock()
			}
		}()
		go func() {
			defer ended.Done()
			for i := 1; i <= count; i++ {
				mu.Lock()
				for len(queue) == 0 {
					changed.Wait()
				}
				sum.Add(int64(queue[0]))
				queue = queue[1:]
				changed.Broadcast()
				mu.Unlock()
			}
		}()
	}
	ended.Wait()
	return expect("the sum", int(sum.Load()), 2*sumTo(count))
}

// growStacks: deep recursion on new goroutines, each frame keeps values across a wait in the
// middle and compares them on the way back.
func growStacks(round int) error {
	answers := make(chan int)
	turn := make(chan int)
	depth := 50 + round%400
	for g := 0; g < 3; g++ {
		go func() { answers <- nest(depth, turn) }()
	}
	for g := 0; g < 3; g++ {
		turn <- 1
	}
	if round%50 == 0 {
		runtime.GC()
	}
	for g := 0; g < 3; g++ {
		if err := expect("the sum on the stack", <-answers, sumTo(depth)+1); err != nil {
			return err
		}
	}
	return nil
}

//go:noinline
func nest(depth int, turn chan int) int {
	var room [32]int
	for i := range room {
		room[i] = depth + i
	}
	if depth == 0 {
		return <-turn
	}
	sum := nest(depth-1, turn)
	for i := range room {
		if room[i] != depth+i {
			return -1
		}
	}
	return sum + room[0]
}

func sleepAndTime(int) error {
	start := time.Now()
	time.Sleep(time.Millisecond)
	<-time.After(time.Millisecond)
	if length := time.Since(start); length < 2*time.Millisecond {
		return fmt.Errorf("two waits of 1 ms took %v", length)
	}
	return nil
}
