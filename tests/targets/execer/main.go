// Execer replaces itself by another program, with the same pid.
//
// Protocol: it prints "ready PID". To the line "wait" a goroutine of it waits 10 times for a
// channel, then it prints "done". At any other line it executes the program and the arguments
// that it was given. It ends when its input closes.
package main

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
	"time"
)

func main() {
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if input.Text() == "wait" {
			wait()
			fmt.Println("done")
			continue
		}
		err := syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func wait() {
	c := make(chan int)
	go func() {
		for i := 0; i < 10; i++ {
			time.Sleep(time.Millisecond)
			c <- i
		}
	}()
	for i := 0; i < 10; i++ {
		<-c
	}
}
