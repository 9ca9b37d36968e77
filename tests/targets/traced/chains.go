package main

import (
	"os"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

// chains has goroutines that wait for each other: asks waits for a lock that holds has, which waits
// for another that reads has, which waits for a pipe. Each round is the same; nobody else has the
// locks.
func chains() {
	var first, second sync.Mutex
	reader, writer, err := os.Pipe()
	harness.Check(err)
	held, read, done := make(chan bool), make(chan bool), make(chan bool)
	go func() { asks(&first, held, done) }()
	go func() { holds(&first, &second, held, read, done) }()
	go func() { reads(&second, reader, read, done) }()
	go func() { writes(writer) }()
}

func asks(first *sync.Mutex, held, done chan bool) {
	for {
		<-held
		first.Lock()
		first.Unlock()
		done <- true
	}
}

func holds(first, second *sync.Mutex, held, read, done chan bool) {
	for {
		<-read
		first.Lock()
		held <- true
		second.Lock()
		second.Unlock()
		first.Unlock()
	}
}

func reads(second *sync.Mutex, reader *os.File, read, done chan bool) {
	one := make([]byte, 1)
	for {
		second.Lock()
		read <- true
		_, err := reader.Read(one)
		harness.Check(err)
		second.Unlock()
		<-done
	}
}

func writes(writer *os.File) {
	for {
		time.Sleep(20 * time.Millisecond)
		_, err := writer.Write([]byte{1})
		harness.Check(err)
	}
}
