// Upstreams is a server whose handler waits for two peers: 30 ms for an answer of HTTP, then 10 ms for
// a byte of a connection.
//
// Protocol: it prints "ready PID", then "peers A B", their addresses, and obeys the lines that it
// reads:
//
//	go N    N clients send requests until it ends; prints "going"
//
// It ends when its input closes.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"ebpfprof.test/harness"
)

const (
	answerAfter = 30 * time.Millisecond
	byteAfter   = 10 * time.Millisecond
)

var answering, sending string

//go:noinline
func fetch(w http.ResponseWriter, r *http.Request) {
	get("http://" + answering)
	connection, err := net.Dial("tcp", sending)
	harness.Check(err)
	_, err = io.ReadFull(connection, make([]byte, 1))
	harness.Check(err)
	harness.Check(connection.Close())
}

func get(url string) {
	answer, err := http.Get(url)
	harness.Check(err)
	_, err = io.Copy(io.Discard, answer.Body)
	harness.Check(err)
	harness.Check(answer.Body.Close())
}

func send(connection net.Conn) {
	time.Sleep(byteAfter)
	connection.Write([]byte{1})
	connection.Close()
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	return listener
}

func main() {
	server, answers, bytes := listen(), listen(), listen()
	answering, sending = answers.Addr().String(), bytes.Addr().String()
	go http.Serve(answers, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		time.Sleep(answerAfter)
	}))
	go func() {
		for {
			connection, err := bytes.Accept()
			harness.Check(err)
			go send(connection)
		}
	}()
	mux := http.NewServeMux()
	mux.HandleFunc("/fetch", fetch)
	go http.Serve(server, mux)
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 100
	harness.Ready()
	fmt.Println("peers", answering, sending)
	for harness.Next() {
		for i := 0; i < harness.Number(harness.Words()[1]); i++ {
			go func() {
				for {
					get("http://" + server.Addr().String() + "/fetch")
				}
			}()
		}
		fmt.Println("going")
	}
}
