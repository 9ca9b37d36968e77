// Threads holds threads: in system calls, in C (built with the tag withcgo), and locked to
// goroutines that wait.
//
// Commands, a line each; each is answered by "done" once the threads are held:
//
//	read N     N goroutines that read from a pipe, each in a system call
//	lock N     N goroutines that are locked to their threads and wait for a channel
//	c N        N goroutines that sleep in C
//	end N      N goroutines that lock their threads and end, and their threads with them
//	own FOLDER writes threadcreate.pb.gz and threadcreate.txt
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"syscall"

	"ebpfprof.test/harness"
)

var begun, want atomic.Int64

//go:noinline
func readPipe(fd int) {
	buffer := make([]byte, 1)
	begun.Add(1)
	syscall.Read(fd, buffer)
}

//go:noinline
func holdThread(never chan int) {
	runtime.LockOSThread()
	begun.Add(1)
	<-never
}

//go:noinline
func endThread(done chan int) {
	runtime.LockOSThread()
	done <- 1
}

// The states of all goroutines with this function on their stacks.
func await(state, function string, count int) {
	harness.Poll(func() bool { return countIn(state, function) >= count })
}

func countIn(state, function string) int {
	count := 0
	for _, each := range split(harness.Traceback()) {
		if contains(each, "["+state) && contains(each, function+"(") {
			count++
		}
	}
	return count
}

func own(folder string) {
	for debug, name := range []string{"threadcreate.pb.gz", "threadcreate.txt"} {
		file, err := os.Create(filepath.Join(folder, name))
		harness.Check(err)
		harness.Check(pprof.Lookup("threadcreate").WriteTo(file, debug))
		harness.Check(file.Close())
	}
}

func main() {
	var ends [2]int
	harness.Check(syscall.Pipe(ends[:]))
	never := make(chan int)
	totals := map[string]int{}
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		if words[0] == "own" {
			own(words[1])
			fmt.Println("done")
			continue
		}
		number := harness.Number(words[1])
		totals[words[0]] += number
		switch words[0] {
		case "read":
			for i := 0; i < number; i++ {
				go readPipe(ends[0])
			}
			await("syscall", "main.readPipe", totals["read"])
		case "lock":
			for i := 0; i < number; i++ {
				go holdThread(never)
			}
			await("chan receive", "main.holdThread", totals["lock"])
		case "c":
			for i := 0; i < number; i++ {
				go sleepInC()
			}
			await("syscall", "main.sleepInC", totals["c"])
		case "end":
			done := make(chan int)
			for i := 0; i < number; i++ {
				go endThread(done)
				<-done
			}
		}
		fmt.Println("done")
	}
}
