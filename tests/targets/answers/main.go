// Answers is an HTTP server whose handler needs a lock, which another goroutine holds while it asks
// a slow backend. All of it is on this machine; a client within asks one request after the other.
//
// Protocol: it prints "ready PID", then a line of JSON with the addresses: of the server, of its
// client, of the backend. It obeys the lines that it reads:
//
//	ask N    asks N times; prints a line of JSON with what that took, by its own clock
//	frames N the same without encryption by HTTP/2, two requests at a time (Go 1.24 on)
//
// It ends when its input closes.
package main

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

const (
	delay = 20 * time.Millisecond // of the backend
	work  = 2 * time.Millisecond  // of the handler
)

var (
	cache sync.Mutex // what the handler needs
	asked = make(chan bool)
	held  = make(chan bool)
	let   = make(chan bool)

	handled, waited, read atomic.Int64 // ns
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go func() { serveBackend(slow) }()
	backend, err := net.Dial("tcp", slow.Addr().String())
	harness.Check(err)
	go func() { holds(backend) }()
	server := &http.Server{Handler: http.HandlerFunc(handle)}
	allowFrames(server)
	go func() { harness.Check(server.Serve(listener)) }()
	client, err := net.Dial("tcp", listener.Addr().String())
	harness.Check(err)
	answers := bufio.NewReader(client)
	harness.Ready()
	harness.Say(json.Marshal(map[string]any{
		"server":  listener.Addr().String(),
		"client":  client.LocalAddr().String(),
		"backend": slow.Addr().String(),
	}))
	for harness.Next() {
		words := harness.Words()
		count, err := strconv.Atoi(words[1])
		harness.Check(err)
		handled.Store(0)
		waited.Store(0)
		read.Store(0)
		if words[0] == "frames" {
			askInFrames(listener.Addr().String(), count)
		} else {
			for i := 0; i < count; i++ {
				hold()
				ask(client, answers)
				<-let
			}
		}
		harness.Say(json.Marshal(map[string]int64{
			"handled_ns": handled.Load(), "waited_ns": waited.Load(), "read_ns": read.Load(),
		}))
	}
}

// hold returns when the lock is taken and the backend is asked.
func hold() {
	asked <- true
	<-held
}

func ask(client net.Conn, answers *bufio.Reader) {
	_, err := client.Write([]byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n"))
	harness.Check(err)
	answer, err := http.ReadResponse(answers, nil)
	harness.Check(err)
	harness.Check(answer.Body.Close())
}

// handle is what a request takes: a lock, and some computing.
func handle(writer http.ResponseWriter, _ *http.Request) {
	begin := time.Now()
	cache.Lock()
	waited.Add(int64(time.Since(begin)))
	cache.Unlock()
	harness.Spin(work)
	writer.WriteHeader(http.StatusNoContent)
	handled.Add(int64(time.Since(begin)))
}

// holds takes the lock and keeps it until the backend has answered.
func holds(backend net.Conn) {
	one := make([]byte, 1)
	for range asked {
		cache.Lock()
		_, err := backend.Write(one)
		harness.Check(err)
		held <- true
		begin := time.Now()
		_, err = backend.Read(one)
		harness.Check(err)
		read.Add(int64(time.Since(begin)))
		cache.Unlock()
		let <- true
	}
}

// serveBackend answers late.
func serveBackend(listener net.Listener) {
	connection, err := listener.Accept()
	harness.Check(err)
	one := make([]byte, 1)
	for {
		_, err := connection.Read(one)
		harness.Check(err)
		time.Sleep(delay)
		_, err = connection.Write(one)
		harness.Check(err)
	}
}
