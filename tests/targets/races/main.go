// Races changes all data that a profiler reads from outside: short-lived goroutines of several
// families, whose runtime.g another family uses next; more and more of them at a time, so that
// the runtime's list of all goroutines grows; stacks that grow before a wait and that the
// collector moves during it; new labels for each goroutine, freed after it.
//
// A test can tell what belongs together: all frames of package main of a goroutine are of its
// family (crane, heron, ...), which its label "family" names.
//
// Protocol: it prints "ready PID", waits for a line, runs, prints "done", waits for a line, writes
// its own block profile if a flag asks for it, prints "written" and waits for the end of its input.
package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

var (
	blockRate   = flag.Int("blockrate", 0, "rate of Go's own block profiler in ns; 0 is off")
	profilePath = flag.String("profile", "", "write Go's own block profile to this file")
	crowds      = flag.Int("crowds", 20, "how many times a crowd of goroutines comes and goes")
	growth      = flag.Int("growth", 30, "by how many goroutines of a family each is larger")
)

// A family waits at the end of a chain of calls of its own, `levels` deep.
type family struct {
	name    string
	descend func(levels int, n *nest) int
}

var families = []family{
	{"crane", crane},
	{"heron", heron},
	{"ibis", ibis},
	{"stork", stork},
	{"egret", egret},
}

// A nest has the channels and the lock of one family of one crowd.
type nest struct {
	in, out, never chan int
	mu             sync.Mutex
	held           int
	ended          sync.WaitGroup
}

func main() {
	flag.Parse()
	runtime.SetBlockProfileRate(*blockRate)
	harness.Ready()
	if !harness.Next() {
		return
	}
	var stopping, stopped atomic.Bool
	go collect(&stopping, &stopped)
	for i := 1; i <= *crowds; i++ {
		gather(i * *growth)
	}
	stopping.Store(true)
	for !stopped.Load() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("done")
	if !harness.Next() {
		return
	}
	ownprofile.Write("block", *profilePath)
	fmt.Println("written")
	harness.AwaitEnd()
}

// gather starts so many goroutines of each family, and waits for their end.
func gather(members int) {
	nests := make([]*nest, len(families))
	for i := range families {
		nests[i] = &nest{in: make(chan int), out: make(chan int), never: make(chan int)}
		nests[i].ended.Add(members)
	}
	for number := 0; number < members; number++ {
		for i, f := range families {
			go live(f, number, nests[i])
		}
	}
	// In turns, so that one family's goroutines end while others wait.
	for number := 0; number < members; number++ {
		for _, n := range nests {
			n.in <- number
			<-n.out
		}
	}
	for _, n := range nests {
		n.ended.Wait()
	}
}

// live is the work of a goroutine: it sets labels, grows its stack and descends to its wait.
func live(f family, number int, n *nest) {
	defer n.ended.Done()
	// New strings each time, as a server makes them from a request.
	labels := pprof.Labels("family", strings.Clone(f.name), "number", strconv.Itoa(number%8))
	pprof.Do(context.Background(), labels, func(context.Context) {
		if number%3 == 0 {
			harness.GrowStack(200)
		}
		if f.descend(number%5+1, n) < 0 {
			panic("races: a wrong result")
		}
	})
}

// hold takes the lock that all goroutines of the nest want, and yields with it now and then.
func (n *nest) hold() {
	n.mu.Lock()
	n.held++
	if n.held%4 == 0 {
		runtime.Gosched()
	}
	n.mu.Unlock()
}

func collect(stopping, stopped *atomic.Bool) {
	for round := 0; !stopping.Load(); round++ {
		runtime.GC()
		if round%16 == 0 {
			debug.FreeOSMemory()
		}
	}
	stopped.Store(true)
}
