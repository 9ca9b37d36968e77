// Pingpong measures what a blocking event costs: one producer and one consumer over an
// unbuffered channel, one event per send.
//
// Protocol: it prints "ready PID"; to every line it answers "ns N", the nanoseconds per send of
// a round. It ends when its input closes.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

func main() {
	blockRate := flag.Int("blockrate", 0, "rate of Go's own block profiler in ns; 0 is off")
	sends := flag.Int("sends", 100000, "sends of a round")
	processors := flag.Int("procs", 2, "GOMAXPROCS")
	flag.Parse()
	runtime.SetBlockProfileRate(*blockRate)
	runtime.GOMAXPROCS(*processors)
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		length := round(*sends)
		fmt.Printf("ns %.1f\n", float64(length.Nanoseconds())/float64(*sends))
	}
}

func round(sends int) time.Duration {
	balls, done := make(chan int), make(chan bool)
	go consume(balls, done)
	start := time.Now()
	produce(balls, sends)
	<-done
	return time.Since(start)
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
