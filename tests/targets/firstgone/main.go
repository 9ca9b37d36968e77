// Firstgone ends its first thread while goroutines go on, as C's main does by pthread_exit. They
// hold a lock for two milliseconds each, one after the other.
//
// Protocol: it prints "ready PID" when the kernel calls the first thread a zombie, and ends when its
// input closes.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

var mu sync.Mutex

func init() { runtime.LockOSThread() } // main runs on the first thread

func main() {
	harness.EndWithInput()
	for i := 0; i < 3; i++ {
		go contend()
	}
	go announce()
	syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread alone
}

func contend() {
	for {
		mu.Lock()
		time.Sleep(2 * time.Millisecond)
		mu.Unlock()
	}
}

func announce() {
	name := fmt.Sprintf("/proc/%d/stat", os.Getpid())
	for {
		stat, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		if bytes.Contains(stat, []byte(") Z ")) {
			harness.Ready()
			return
		}
		time.Sleep(time.Millisecond)
	}
}
