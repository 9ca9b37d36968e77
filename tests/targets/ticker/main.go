// Ticker has a goroutine that waits for a tick of another one, again and again, every
// millisecond; and it can replace itself by another program, with the same pid.
//
// Protocol: it prints "ready PID" and starts. To the line "wait" it answers "done" once 10 more
// ticks have been waited for. At the line "exec" it executes the program and the arguments that
// it was given. It ends when its input closes.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

var ticks atomic.Int64

func main() {
	c := make(chan int)
	go send(c)
	go receive(c)
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		switch input.Text() {
		case "wait":
			// One may be half over.
			for until := ticks.Load() + 11; ticks.Load() < until; {
				time.Sleep(time.Millisecond)
			}
			fmt.Println("done")
		case "exec":
			err := syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
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
