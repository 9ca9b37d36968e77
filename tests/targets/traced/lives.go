package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

// births has goroutines that create others, which live for a moment.
func births() {
	go bear()
	go bear()
}

func bear() {
	for {
		var born sync.WaitGroup
		born.Add(3)
		for i := 0; i < 3; i++ {
			go func() { live(&born) }()
		}
		born.Wait()
		time.Sleep(some(2 * time.Millisecond))
	}
}

func live(born *sync.WaitGroup) {
	harness.Spin(some(20 * time.Microsecond))
	time.Sleep(some(300 * time.Microsecond))
	runtime.Gosched()
	born.Done()
}

// labels has goroutines with labels.
func labels() {
	for _, name := range []string{"first", "second"} {
		name := name
		go pprof.Do(context.Background(), pprof.Labels("task", name), func(context.Context) { doze() })
	}
}

var kept [][]byte

// garbage has goroutines that allocate so much that they have to help the collector.
func garbage() {
	debug.SetGCPercent(50)
	for i := 0; i < 1<<14; i++ {
		kept = append(kept, make([]byte, 1024))
	}
	for i := 0; i < 4; i++ {
		go waste()
	}
}

func waste() {
	var some [][]byte
	for {
		some = append(some, make([]byte, 4096))
		if len(some) == 256 {
			some = nil
		}
	}
}
