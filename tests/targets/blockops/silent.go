package main

import (
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

// Waits that Go's block profile must not show: none of them is an event.
var silentOperations = []operation{
	{"sleeping", 0, sleeping},
	{"yielding", 0, yielding},
	{"uncontended", 0, uncontended},
	{"polling", 0, polling},
	{"networkWait", 0, networkWait},
	{"nilChannel", 0, nilChannel},
	{"selectForever", 0, selectForever},
	{"stillBlocked", 0, stillBlocked},
	{"collecting", 0, collecting},
}

func sleeping(int) {
	harness.Together(3, func() {
		for i := 0; i < 20; i++ {
			time.Sleep(100 * time.Microsecond)
		}
	})
}

func yielding(int) {
	harness.Together(3, func() {
		for i := 0; i < 1000; i++ {
			runtime.Gosched()
		}
	})
}

func uncontended(int) {
	var mu sync.Mutex
	var rw sync.RWMutex
	var group sync.WaitGroup
	c := make(chan int, 1)
	harness.Together(1, func() {
		for i := 0; i < 100; i++ {
			mu.Lock()
			mu.Unlock()
			rw.RLock()
			rw.RUnlock()
			rw.Lock()
			rw.Unlock()
			group.Wait()
			c <- i
			<-c
			select {
			case c <- i:
			case <-time.After(time.Hour):
			}
			<-c
		}
	})
}

func polling(int) {
	var mu sync.Mutex
	c := make(chan int)
	mu.Lock()
	harness.Together(2, func() {
		for i := 0; i < 100; i++ {
			select {
			case <-c:
			default:
			}
			mu.TryLock()
		}
	})
}

// networkWait: Accept and Read wait in the network poller.
func networkWait(int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	p := harness.NewPartner(func() {
		connection, err := listener.Accept()
		harness.Check(err)
		_, err = connection.Read(make([]byte, 1))
		harness.Check(err)
		harness.Check(connection.Close())
	})
	for i := 0; i < 20; i++ {
		p.Begin()
		p.AwaitInput()
		connection, err := net.Dial("tcp", listener.Addr().String())
		harness.Check(err)
		p.AwaitInput()
		_, err = connection.Write([]byte("x"))
		harness.Check(err)
		p.AwaitEnd()
		harness.Check(connection.Close())
	}
	p.Stop()
	harness.Check(listener.Close())
}

// stay starts a goroutine that reaches a state and stays there until the program ends.
func stay(state string, block func()) {
	p := harness.NewPartner(block)
	p.Begin()
	p.Await(state)
}

func nilChannel(int) {
	var never chan int
	stay("chan receive (nil chan)", func() { <-never })
	stay("chan send (nil chan)", func() { never <- 1 })
}

func selectForever(int) {
	stay("select (no cases)", func() { select {} })
}

// stillBlocked: a wait counts when it ends, and these do not end.
func stillBlocked(int) {
	c := make(chan int)
	stay("chan receive", func() { <-c })
	stay("chan send", func() { make(chan int) <- 1 })
	stay("select", func() {
		select {
		case <-c:
		case <-make(chan int):
		}
	})
}

// collecting: several goroutines wait for the runtime's own semaphores.
func collecting(int) {
	harness.Together(4, func() {
		var stats runtime.MemStats
		for i := 0; i < 5; i++ {
			runtime.GC()
			debug.FreeOSMemory()
			runtime.ReadMemStats(&stats)
			debug.SetGCPercent(debug.SetGCPercent(50))
			runtime.NumGoroutine()
		}
	})
}
