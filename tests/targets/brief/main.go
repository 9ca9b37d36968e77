// Brief takes a few milliseconds: a goroutine waits a known number of times while Go initialises
// packages, and again in the first lines of main. Then it obeys its arguments:
//
//	exit N      ends with status N
//	signal N    ends by signal N
//	copy        copies its input to its output
//	exec ARG... executes another program in its place
//	wait        prints "ready PID" and each signal, until its input closes
//
// Protocol of "wait": at a signal it prints "got SIGNAL"; SIGTERM ends it with status 7.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"ebpfprof.test/harness"
)

const (
	waitsOfInit = 20
	waitsOfMain = 30
)

func init() {
	// With one processor, the sender runs only when the receiver waits.
	runtime.GOMAXPROCS(1)
	receiveInInit()
}

func main() {
	receiveInMain()
	if len(os.Args) < 2 {
		return
	}
	switch arguments := os.Args[2:]; os.Args[1] {
	case "exit":
		os.Exit(harness.Number(arguments[0]))
	case "signal":
		end(syscall.Signal(harness.Number(arguments[0])))
	case "copy":
		_, err := io.Copy(os.Stdout, os.Stdin)
		harness.Check(err)
	case "exec":
		harness.Check(syscall.Exec(arguments[0], arguments, os.Environ()))
	case "wait":
		waitForSignals()
	}
}

func receiveInInit() { receive(waitsOfInit) }

func receiveInMain() { receive(waitsOfMain) }

func receive(times int) {
	c := make(chan int)
	for i := 0; i < times; i++ {
		go func() { c <- 1 }()
		<-c
	}
}

// end restores the default action of the signal, and sends it to the process.
func end(number syscall.Signal) {
	signal.Reset()
	_ = syscall.Kill(os.Getpid(), number)
	select {}
}

func waitForSignals() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals)
	harness.Ready()
	harness.EndWithInput()
	for got := range signals {
		if got == syscall.SIGURG || got == syscall.SIGCHLD {
			continue // a signal of the runtime's own
		}
		fmt.Println("got", got)
		if got == syscall.SIGTERM {
			os.Exit(7)
		}
	}
}
