// Pingpong measures what a blocking event costs: one producer and one consumer over an
// unbuffered channel, one event per send.
//
// Protocol: it prints "ready PID"; to every line it answers "ns N", the nanoseconds per send of
// a round. It ends when its input closes.
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
		length := round(*sends, *depth)
		fmt.Printf("ns %.1f\n", float64(length.Nanoseconds())/float64(*sends))
	}
}

func round(sends, depth int) time.Duration {
	balls, done := make(chan int), make(chan bool)
	go below(depth, func() { consume(balls, done) })
	start := time.Now()
	below(depth, func() { produce(balls, sends) })
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
func produce(balls chan<- int, sends int) {
	for i := 0; i < sends; i++ {
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
