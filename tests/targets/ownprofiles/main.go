// Ownprofiles waits for a lock and a channel, allocates, and computes. Then it writes each profile
// of runtime/pprof to the folder that is its argument: NAME.pb.gz and, as debug=1, NAME.txt.
package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

var kept [][]byte

func check(err error) {
	if err != nil {
		panic(err)
	}
}

//go:noinline
func compute(until time.Duration) (sum int) {
	for begin := time.Now(); time.Since(begin) < until; {
		for i := 0; i < 1000; i++ {
			sum += i * i
		}
	}
	return sum
}

//go:noinline
func allocate() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 64<<10))
	}
}

//go:noinline
func contend() {
	var lock sync.Mutex
	lock.Lock()
	waiting := make(chan struct{})
	done := make(chan struct{})
	go func() {
		close(waiting)
		lock.Lock()
		lock.Unlock()
		close(done)
	}()
	<-waiting
	for compute(20 * time.Millisecond); !somebodyWaits(); {
		compute(time.Millisecond)
	}
	lock.Unlock()
	<-done
}

// somebodyWaits returns whether a goroutine waits for a lock. Go 1.19 names the state differently.
func somebodyWaits() bool {
	stacks := make([]byte, 1<<16)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Contains(stacks, []byte(" [sync.Mutex.Lock")) || bytes.Contains(stacks, []byte(" [semacquire"))
}

func main() {
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	runtime.MemProfileRate = 1
	folder := os.Args[1]
	cpu, err := os.Create(filepath.Join(folder, "cpu.pb.gz"))
	check(err)
	check(pprof.StartCPUProfile(cpu))
	allocate()
	contend()
	compute(200 * time.Millisecond)
	pprof.StopCPUProfile()
	check(cpu.Close())
	for _, profile := range pprof.Profiles() {
		for debug, suffix := range []string{".pb.gz", ".txt"} {
			file, err := os.Create(filepath.Join(folder, profile.Name()+suffix))
			check(err)
			check(profile.WriteTo(file, debug))
			check(file.Close())
		}
	}
	runtime.KeepAlive(kept)
}
