// Pingpong measures what a blocking event costs: one producer and one consumer over an
// unbuffered channel, one event per send.
//
// Protocol: it prints "ready PID"; to every line it answers "ns N", the nanoseconds per send of
// a round; "go SENDS" has a round of so many. It ends when its input closes.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/trace"
	"time"

	"ebpfprof.test/harness"
)

func main() {
	blockRate := flag.Int("blockrate", 0, "rate of Go's own block profiler in ns; 0 is off")
	sends := flag.Int("sends", 100000, "sends of a round")
	depth := flag.Int("depth", 1, "how many functions lead to each operation")
	processors := flag.Int("procs", 2, "GOMAXPROCS")
	spin := flag.Duration("spin", 0, "how long the producer computes before each send")
	traced := flag.String("trace", "", "the file for Go's own execution tracer; none: off")
	flag.Parse()
	runtime.SetBlockProfileRate(*blockRate)
	runtime.GOMAXPROCS(*processors)
	if *traced != "" {
		file, err := os.Create(*traced)
		harness.Check(err)
		harness.Check(trace.Start(file))
	}
	harness.Ready()
	for harness.Next() {
		count := *sends
		if words := harness.Words(); len(words) > 1 {
			count = harness.Number(words[1])
		}
		length := round(count, *depth, *spin)
		fmt.Printf("ns %.1f\n", float64(length.Nanoseconds())/float64(count))
	}
}

func round(sends, depth int, spin time.Duration) time.Duration {
	balls, done := make(chan int), make(chan bool)
	go below(depth, func() { consume(balls, done) })
	start := time.Now()
	below(depth, func() { produce(balls, sends, spin) })
	<-done
	return time.Since(start)
}

// below calls work from so many nested functions.
//
//go:noinline
func below(depth int, work func()) {
	if depth > 1 {
		below(depth-1, work)
	} else {
		work()
	}
}

//go:noinline
func produce(balls chan<- int, sends int, spin time.Duration) {
	for i := 0; i < sends; i++ {
		if spin > 0 {
			harness.Spin(spin)
		}
		balls <- i
	}
	close(balls)
}

//go:noinline
func consume(balls <-chan int, done chan<- bool) {
	for range balls {
	}
	done <- true
}
