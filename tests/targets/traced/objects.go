package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

var catalog struct {
	books int
	mu    sync.Mutex
}

var barred sync.Mutex

type shelf struct {
	books []string
	rw    sync.RWMutex
	moved sync.WaitGroup
}

// objects has goroutines that wait for locks with names, and for connections to two servers: the
// first answers late, the second at once. Each connection has the descriptor of the one before.
// Others wait all the time. It prints "ports FIRST SECOND".
func objects() {
	held := &shelf{books: make([]string, 3)}
	for i := 0; i < 3; i++ {
		go take()
		go look(held)
	}
	go func() { put(held) }()
	barred.Lock()
	go stay()
	first, second := serve(25*time.Millisecond), serve(200*time.Microsecond)
	go idle(second)
	time.Sleep(10 * time.Millisecond)
	go alternate(first, second)
	fmt.Println("ports", port(first), port(second))
}

func take() {
	for {
		catalog.mu.Lock()
		catalog.books++
		time.Sleep(300 * time.Microsecond)
		catalog.mu.Unlock()
	}
}

func look(at *shelf) {
	for {
		at.rw.RLock()
		time.Sleep(300 * time.Microsecond)
		at.rw.RUnlock()
	}
}

func put(into *shelf) {
	for {
		into.rw.Lock()
		time.Sleep(time.Millisecond)
		into.rw.Unlock()
		into.moved.Add(1)
		go func() { move(into) }()
		into.moved.Wait()
	}
}

func move(from *shelf) {
	time.Sleep(time.Millisecond)
	from.moved.Done()
}

func stay() {
	barred.Lock()
}

func serve(after time.Duration) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go func() { accept(listener, after) }()
	return listener
}

func accept(listener net.Listener, after time.Duration) {
	for {
		connection, err := listener.Accept()
		harness.Check(err)
		go func() { reply(connection, after) }()
	}
}

func reply(connection net.Conn, after time.Duration) {
	question := make([]byte, 1)
	_, err := io.ReadFull(connection, question)
	harness.Check(err)
	time.Sleep(after)
	_, err = connection.Write(question)
	harness.Check(err)
	harness.Check(connection.Close())
}

func port(of net.Listener) int { return of.Addr().(*net.TCPAddr).Port }

func alternate(first, second net.Listener) {
	for {
		askFirst(first)
		askSecond(second)
	}
}

func askFirst(of net.Listener) { askOnce(of) }

func askSecond(of net.Listener) { askOnce(of) }

func askOnce(of net.Listener) {
	connection, err := net.Dial("tcp", of.Addr().String())
	harness.Check(err)
	question := make([]byte, 1)
	_, err = connection.Write(question)
	harness.Check(err)
	_, err = io.ReadFull(connection, question)
	harness.Check(err)
	harness.Check(connection.Close())
}

// idle has a connection, and waits for an answer to a question that it never asks.
func idle(of net.Listener) {
	connection, err := net.Dial("tcp", of.Addr().String())
	harness.Check(err)
	_, err = io.ReadFull(connection, make([]byte, 1))
	harness.Check(err)
}
