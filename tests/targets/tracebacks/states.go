package main

import (
	"context"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

var (
	lock, condLock sync.Mutex
	shared         sync.RWMutex
	group          sync.WaitGroup
	cond           = sync.NewCond(&condLock)
	null           chan int
	held           *os.File // else the collector closes it
	unheard        = make(chan int)
)

// states has goroutines that wait for something else than a channel.
func states() []func() {
	lock.Lock()
	shared.Lock()
	group.Add(1)
	reader, writer, err := os.Pipe()
	harness.Check(err)
	held = writer
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	var pipe [2]int
	harness.Check(syscall.Pipe(pipe[:]))
	buffer := make([]byte, 8)
	return []func(){
		func() { lock.Lock() },
		func() { shared.RLock() },
		func() { group.Wait() },
		func() { condLock.Lock(); cond.Wait() },
		func() { time.Sleep(time.Hour) },
		func() { select {} },
		func() { <-null },
		func() { null <- 1 },
		func() { unheard <- 1 },
		func() {
			select {
			case <-null:
			case unheard <- 2:
			}
		},
		func() { reader.Read(buffer) },
		func() { listener.Accept() },
		func() { syscall.Read(pipe[0], buffer) },
		func() { recurseThen(150, func() { syscall.Syscall(syscall.SYS_READ, uintptr(pipe[0]), 0, 1) }) },
		func() { runtime.LockOSThread(); <-never },
		func() { runtime.LockOSThread(); syscall.Read(pipe[0], buffer) },
	}
}

// labelled has goroutines with labels.
func labelled() []func() {
	sets := [][]string{
		{"request", "first"},
		{"request", "first"},
		{"b", "2", "a", "1", "c", "3"},
		{"key with spaces", "quotes \" and \\ and \n\t\a\x01\x7f"},
		{"ключ", "värde \u00a0 \u200b \U0001F600 \ufffd"},
		{"bytes", "\xff\xfe ok \xe2\x82"},
		{"path", "a/b.c_d-e"},
		{},
		{"many0", "0", "many1", "1", "many2", "2", "many3", "3", "many4", "4", "many5", "5",
			"many6", "6", "many7", "7", "many8", "8", "many9", "9"},
		{"long", string(make([]byte, 300))},
	}
	all := []func(){}
	for _, set := range sets {
		set := set
		all = append(all, func() {
			pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(set...)))
			<-never
		})
	}
	return all
}
