// Routes is a server with 20 routes that logs how long each of them waits. A handler waits itself;
// those of the last five routes also start a goroutine that does. With the argument http2, clients
// speak HTTP/2.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	go N MS     sends N requests to each route, which wait for at least MS milliseconds, one wait in
//	            twenty for four times as long; prints "done" and a line of JSON with a record for
//	            each route: how often it waited, for how many nanoseconds until its waker ran, and
//	            until it went on
//	lengths     prints a line of JSON with the lengths of the waits of each route, in nanoseconds
//	            until its waker ran
//	write FILE  writes Go's own block profile; prints "written"
//
// It ends when its input closes.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/ownprofile"
)

type record struct {
	count, wokenNs, waitedNs atomic.Int64

	lock    sync.Mutex
	lengths []int64
}

func (r *record) add(wokenNs, waitedNs int64) {
	r.wokenNs.Add(wokenNs)
	r.waitedNs.Add(waitedNs)
	r.lock.Lock()
	r.lengths = append(r.lengths, wokenNs)
	r.lock.Unlock()
}

// By the number of the route.
var records [20]record

var client = http.DefaultClient

// How long all routes wait at least.
var least time.Duration

type pause struct {
	done  chan struct{}
	woken time.Time
}

//go:noinline
func wait(route int) {
	p := &pause{done: make(chan struct{})}
	r := &records[route]
	length := least + time.Duration(route)*time.Millisecond
	if r.count.Add(1)%20 == 0 {
		length *= 4
	}
	start := time.Now()
	time.AfterFunc(length, func() {
		p.woken = time.Now()
		close(p.done)
	})
	<-p.done
	r.add(int64(p.woken.Sub(start)), int64(time.Since(start)))
}

//go:noinline
func waitAndSend(route int, done chan<- bool) {
	wait(route)
	done <- true
}

// logged is middleware.
func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		w.Header()
	})
}

func request(url string) {
	answer, err := client.Get(url)
	harness.Check(err)
	_, err = io.Copy(io.Discard, answer.Body)
	harness.Check(err)
	harness.Check(answer.Body.Close())
}

func sendAll(url string, count int) {
	var all sync.WaitGroup
	for route := range handlers {
		url := fmt.Sprintf("%s/%02d", url, route)
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < count; i++ {
				request(url)
			}
		}()
	}
	all.Wait()
}

func report() {
	var values [20][3]int64
	for i := range records {
		r := &records[i]
		values[i] = [3]int64{r.count.Load(), r.wokenNs.Load(), r.waitedNs.Load()}
	}
	harness.Say(json.Marshal(values))
}

func reportLengths() {
	var values [20][]int64
	for i := range records {
		values[i] = records[i].lengths
	}
	harness.Say(json.Marshal(values))
}

func main() {
	runtime.SetBlockProfileRate(1)
	mux := http.NewServeMux()
	for route, handler := range handlers {
		mux.HandleFunc(fmt.Sprintf("/%02d", route), handler)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	url := "http://" + listener.Addr().String()
	if len(os.Args) > 1 && os.Args[1] == "http2" {
		server := &httptest.Server{
			Listener: listener, EnableHTTP2: true, Config: &http.Server{Handler: logged(mux)},
		}
		server.StartTLS()
		client, url = server.Client(), server.URL
	} else {
		go http.Serve(listener, logged(mux))
	}
	harness.Ready()
	for harness.Next() {
		switch words := harness.Words(); words[0] {
		case "go":
			least = time.Duration(harness.Number(words[2])) * time.Millisecond
			sendAll(url, harness.Number(words[1]))
			fmt.Println("done")
			report()
		case "lengths":
			reportLengths()
		case "write":
			ownprofile.Write("block", words[1])
			fmt.Println("written")
		}
	}
}
