// Servers handles the same requests with the frameworks that ebpfprof knows, one by one: a method
// behind middleware, a closure, a function of a subrouter, a function that starts goroutines.
//
//	servers FRAMEWORK dump    every handler waits; print the tracebacks of all goroutines
//	servers FRAMEWORK         handlers wait for a millisecond, of requests that never end to come
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

// A server listens, and returns what sends it a request of each kind.
var servers = map[string]func(net.Listener) []func(){
	"nethttp":    serveNetHTTP,
	"chi":        serveChi,
	"gin":        serveGin,
	"echo":       serveEcho,
	"fiber":      serveFiber,
	"grpc":       serveGRPC,
	"connect":    serveConnect,
	"gorilla":    serveGorilla,
	"httprouter": serveHTTPRouter,
	"netrpc":     serveRPC,
	"watermill":  serveWatermill,
}

// So many goroutines wait, in a dump.
const waits = 6

var (
	isDump  = len(os.Args) == 3
	waiting atomic.Int64
	ended   = make(chan struct{})
)

//go:noinline
func wait() {
	if isDump {
		waiting.Add(1)
		<-ended
		return
	}
	<-time.After(time.Millisecond)
}

type shop struct{ name string }

//go:noinline
func (s *shop) checkout() { wait() }

//go:noinline
func (s *shop) stock() { wait() }

// prices is for what a goroutine does that another function has started.
//
//go:noinline
func (s *shop) prices(done chan<- bool) {
	wait()
	done <- true
}

var theShop = &shop{"corner"}

// spawn starts a goroutine of each kind and waits for them: called by handlers.
func awaitAll(done <-chan bool) {
	<-done
	<-done
}

func httpRequests(listener net.Listener) []func() {
	var requests []func()
	for _, path := range []string{"/checkout", "/closure", "/group/stock", "/spawn"} {
		url := fmt.Sprintf("http://%s%s", listener.Addr(), path)
		requests = append(requests, func() {
			answer, err := http.Get(url)
			harness.Check(err)
			body, err := io.ReadAll(answer.Body)
			harness.Check(err)
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				harness.Check(fmt.Errorf("%s: %s %s", url, answer.Status, body))
			}
		})
	}
	return requests
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	for _, request := range servers[os.Args[1]](listener) {
		request := request
		go func() {
			for {
				request()
			}
		}()
	}
	if isDump {
		harness.Poll(func() bool { return waiting.Load() >= waits-1 })
		time.Sleep(50 * time.Millisecond) // the handler waits for the goroutines that it has started
		os.Stdout.Write(harness.Traceback())
		return
	}
	harness.Ready()
	harness.AwaitEnd()
}
