// Ticker has a goroutine that waits for a tick of another one, again and again, every
// millisecond; and it can replace itself by another program, with the same pid.
//
// Protocol: it prints "ready PID" and starts. To the line "wait" it answers "done" once 10 more
// ticks have been waited for. At the line "exec" it executes the program and the arguments that
// it was given. It ends when its input closes.
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
			// One may be half over.
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
