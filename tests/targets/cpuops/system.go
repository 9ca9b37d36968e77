package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

// Works of the scheduler, the collector and the kernel.
var systemWorks = []work{
	{"pingPong", pingPong},
	{"yield", yield},
	{"askKernel", askKernel},
	{"writeLittle", writeLittle},
	{"askTime", askTime},
	{"allocate", allocate},
	{"signalItself", signalItself},
}

//go:noinline
func pingPong() {
	to, from := make(chan int), make(chan int)
	go func() {
		for n := range to {
			from <- n
		}
		close(from)
	}()
	for i := 0; i < 3000; i++ {
		to <- i
		sink += <-from
	}
	close(to)
	<-from
}

//go:noinline
func yield() {
	for i := 0; i < 10000; i++ {
		runtime.Gosched()
	}
}

//go:noinline
func askKernel() {
	for i := 0; i < 10000; i++ {
		sink += syscall.Getppid()
	}
}

var null = func() *os.File {
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	harness.Check(err)
	return file
}()

//go:noinline
func writeLittle() {
	for i := 0; i < 5000; i++ {
		n, err := syscall.Write(int(null.Fd()), block[:8])
		harness.Check(err)
		sink += n
	}
}

//go:noinline
func askTime() {
	for i := 0; i < 20000; i++ {
		sink += int(time.Now().UnixNano())
	}
}

type node struct {
	left, right *node
	payload     [4]int
}

//go:noinline
func allocate() {
	sink += grown(12).payload[0]
}

//go:noinline
func grown(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: grown(depth - 1), right: grown(depth - 1)}
}

//go:noinline
func signalItself() {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, syscall.SIGUSR1)
	for i := 0; i < 300; i++ {
		harness.Check(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		<-arrived
	}
	signal.Stop(arrived)
}
