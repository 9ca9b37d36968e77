// Layout links every runtime type whose layout generate_goruntime.py records, so that the
// linker keeps their DWARF. It never runs.
package main

import (
	"os"
	"runtime"
	"sync"
	"time"
)

func main() {
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	records := make([]runtime.BlockProfileRecord, 1)
	runtime.BlockProfile(records)
	runtime.MutexProfile(records)
	runtime.MemProfile(make([]runtime.MemProfileRecord, 1), true)
	runtime.CallersFrames(make([]uintptr, 1)).Next()

	var mutex sync.Mutex
	condition := sync.NewCond(&mutex)
	values := make(chan int)
	go func() {
		mutex.Lock()
		condition.Broadcast()
		mutex.Unlock()
		values <- 1
	}()
	mutex.Lock()
	condition.Wait()
	mutex.Unlock()
	select {
	case <-values:
	case <-time.After(time.Second):
	}

	var rw sync.RWMutex
	rw.RLock()
	rw.RUnlock()
	rw.Lock()
	rw.Unlock()
	var group sync.WaitGroup
	group.Add(1)
	go group.Done()
	group.Wait()
	reader, writer, err := os.Pipe()
	if err == nil {
		writer.Close()
		reader.Read(make([]byte, 1))
	}
}
