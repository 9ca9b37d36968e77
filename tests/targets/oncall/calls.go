package main

import (
	"encoding/json"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

func waitForTime() {
	begin("sleepLong", sleepLong)
	await(reports["sleepLong"].ID, "sleep")
	// The second sleep of a goroutine, which has its timer already.
	begin("sleepAgain", sleepAgain)
	for sleptOnce.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	await(reports["sleepAgain"].ID, "sleep")
}

var sleptOnce atomic.Int64

//go:noinline
func sleepLong() { time.Sleep(time.Hour) }

//go:noinline
func sleepAgain() {
	time.Sleep(time.Millisecond)
	sleptOnce.Store(1)
	time.Sleep(2 * time.Hour)
}

func waitInCalls() {
	var pipe [2]int
	harness.Check(syscall.Pipe(pipe[:])) // it blocks: the poller does not know it
	thread := make(chan int)
	began := begin("readInCall", func() {
		runtime.LockOSThread()
		thread <- syscall.Gettid()
		readInCall(pipe[0])
	})
	began.Thread, began.FD = <-thread, uintptr(pipe[0])
	await(began.ID, "syscall")
	kept = append(kept, os.NewFile(uintptr(pipe[1]), "pipe"))
}

//go:noinline
func readInCall(fd int) { syscall.Read(fd, make([]byte, 1)) }

// bare makes a system call that the scheduler is not told of: the goroutine "runs". No garbage
// collection, and no traceback, can be made from then on.
func bare() {
	var pipe [2]int
	harness.Check(syscall.Pipe(pipe[:]))
	thread := make(chan int)
	began := begin("readBare", func() {
		runtime.LockOSThread()
		thread <- syscall.Gettid()
		readBare(pipe[0])
	})
	began.Thread, began.FD = <-thread, uintptr(pipe[0])
	harness.Say(json.Marshal(reports))
}

//go:noinline
func readBare(fd int) {
	room := make([]byte, 1)
	syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&room[0])), 1)
}

// spin starts goroutines that need all of a processor, and can be preempted.
func spin(count int) {
	for i := 0; i < count; i++ {
		go spinOn()
	}
}

//go:noinline
func spinOn() {
	for i := 0; ; i++ {
		spins.Store(int64(i))
	}
}

var spins atomic.Int64
