// Ticker has a goroutine that waits for a tick of another one, again and again, every
// millisecond; and it can execute another program, with the same pid.
//
// Protocol: it prints "ready PID" and starts. To the line "wait" it answers "done" once it has
// waited for 10 more ticks. At the line "exec" it executes the program in its arguments, with the
// arguments behind that. It ends when its input closes.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

var ticks atomic.Int64

func main() {
	c := make(chan int)
	go send(c)
	go receive(c)
	harness.Ready()
	for harness.Next() {
		switch harness.Command() {
		case "wait":
			// The current tick may be half over.
			for until := ticks.Load() + 11; ticks.Load() < until; {
				time.Sleep(time.Millisecond)
			}
			fmt.Println("done")
		case "exec":
			harness.Check(syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
		}
	}
}

func send(c chan<- int) {
	for i := 0; ; i++ {
		time.Sleep(time.Millisecond)
		c <- i
	}
}

func receive(c <-chan int) {
	for range c {
		ticks.Add(1)
	}
}
