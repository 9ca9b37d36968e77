// Hung has goroutines that stay in one state for long, and some that only seem to.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	hang WHAT   a goroutine waits in main.handle for ever: receive, select, sleep, socket, or in a
//	            system call (call); prints "hangs GOID NS", NS just before it does, by
//	            CLOCK_MONOTONIC
//	worker      a goroutine waits for work in main.worker; prints "hangs GOID NS"
//	calls       a goroutine is in one system call after the other, of some 5 ms; prints "begun"
//	pingpong    a goroutine waits for one value after the other in main.catch; prints "begun"
//	crowd N     N goroutines compute, of which one can run at a time; prints "begun"
//
// It ends when its input closes, for which main waits in a system call; with the argument "polling"
// the network poller waits for it.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

func main() {
	polling := len(os.Args) > 1
	harness.Check(syscall.SetNonblock(0, polling))
	input := bufio.NewScanner(os.NewFile(0, "input"))
	harness.Ready()
	for input.Scan() {
		words := strings.Fields(input.Text())
		switch words[0] {
		case "hang":
			started(func() { handle(words[1]) })
		case "worker":
			begins := make(chan string)
			go worker(begins, make(chan int))
			fmt.Println(<-begins)
		case "calls":
			go calls()
			fmt.Println("begun")
		case "pingpong":
			balls := make(chan int)
			go func() { throw(balls) }()
			go func() { catch(balls) }()
			fmt.Println("begun")
		case "crowd":
			count, err := strconv.Atoi(words[1])
			harness.Check(err)
			for i := 0; i < count; i++ {
				go compute()
			}
			fmt.Println("begun")
			runtime.GOMAXPROCS(1)
		default:
			panic("hung: no such command: " + words[0])
		}
	}
}

func started(wait func()) {
	begins := make(chan string)
	go func() {
		begin(begins)
		wait()
	}()
	fmt.Println(<-begins)
}

func begin(begins chan string) {
	id := harness.GoroutineID()
	begins <- fmt.Sprintf("hangs %d %d", id, monotonicNs())
}

//go:noinline
func handle(what string) {
	switch what {
	case "receive":
		<-make(chan int)
	case "select":
		select {
		case <-make(chan int):
		case <-make(chan bool):
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "socket":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		harness.Check(err)
		connection, err := net.Dial("tcp", listener.Addr().String())
		harness.Check(err)
		_, err = connection.Read(make([]byte, 1))
		harness.Check(err)
	case "call":
		reader, _ := pipe()
		_, err := syscall.Read(reader, make([]byte, 1))
		harness.Check(err)
	default:
		panic("hung: no such wait: " + what)
	}
	fmt.Fprintln(os.Stderr, "it went on")
}

//go:noinline
func worker(begins chan string, jobs chan int) {
	begin(begins)
	for range jobs {
	}
}

//go:noinline
func throw(balls chan int) {
	for {
		harness.Spin(2 * time.Millisecond)
		balls <- 1
	}
}

//go:noinline
func catch(balls chan int) {
	for range balls {
	}
}

//go:noinline
func calls() {
	for {
		rest := syscall.Timespec{Nsec: 5_000_000}
		syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&rest)), 0, 0)
	}
}

//go:noinline
func compute() {
	for {
		harness.Spin(time.Millisecond)
	}
}

func pipe() (int, int) {
	var ends [2]int
	harness.Check(syscall.Pipe(ends[:]))
	return ends[0], ends[1]
}

func monotonicNs() int64 {
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(
		syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		panic(errno)
	}
	return now.Nano()
}
