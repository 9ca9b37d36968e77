package main

import (
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// What Go's block profile must not show: none of these is an event.
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

// together runs f in several goroutines and polls until they have ended.
func together(goroutines int, f func()) {
	var partners []*partner
	for i := 0; i < goroutines; i++ {
		p := newPartner(f)
		p.begin()
		partners = append(partners, p)
	}
	for _, p := range partners {
		p.awaitEnd()
		p.stopped.Store(true)
	}
}

func sleeping(int) {
	together(3, func() {
		for i := 0; i < 20; i++ {
			time.Sleep(100 * time.Microsecond)
		}
	})
}

func yielding(int) {
	together(3, func() {
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
	together(1, func() {
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
	together(2, func() {
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
	check(err)
	waiting := []string{"IO wait"}
	p := newPartner(func() {
		connection, err := listener.Accept()
		check(err)
		_, err = connection.Read(make([]byte, 1))
		check(err)
		check(connection.Close())
	})
	for i := 0; i < 20; i++ {
		p.begin()
		poll(func() bool { return p.id.Load() != 0 })
		awaitState(p.id.Load(), waiting)
		connection, err := net.Dial("tcp", listener.Addr().String())
		check(err)
		awaitState(p.id.Load(), waiting)
		_, err = connection.Write([]byte("x"))
		check(err)
		p.awaitEnd()
		check(connection.Close())
	}
	p.stopped.Store(true)
	check(listener.Close())
}

// stay starts a goroutine that reaches a state and stays there until the program ends.
func stay(state string, block func()) {
	p := newPartner(block)
	p.begin()
	poll(func() bool { return p.id.Load() != 0 })
	awaitState(p.id.Load(), []string{state})
}

func nilChannel(int) {
	var never chan int
	stay("chan receive (nil chan)", func() { <-never })
	stay("chan send (nil chan)", func() { never <- 1 })
}

func selectForever(int) {
	stay("select (no cases)", func() { select {} })
}

// stillBlocked: a wait counts when it ends, these don't.
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
	together(4, func() {
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
