// Package traffic gives a service HTTP requests from another process, so that the service's own
// profile has no waits of clients. The other process is the same program, started again, and ends
// with the service.
package traffic

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"ebpfprof.test/harness"
)

const role = "traffic"

// A Load is requests: GET url+Path/N, where N counts from 0 to Keys-1 again and again.
type Load struct {
	Path string
	Keys int // 1000 if it is 0
	// Clients send their next request when they have the answer. With PerSecond, requests are sent
	// that often instead, whether answers come or not.
	Clients, PerSecond int
	// A Burst is how long the requests of a second take to send. If it is 0, they are spread evenly.
	Burst time.Duration
	// A client gives up after Timeout, unless it is 0.
	Timeout time.Duration
}

// The collector would close the client's input if nothing kept it.
var clientInput io.Closer

// A program that was started as a client never gets to its main.
func init() {
	if len(os.Args) == 4 && os.Args[1] == role {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		var loads []Load
		harness.Check(json.Unmarshal([]byte(os.Args[3]), &loads))
		for _, load := range loads {
			load.send(os.Args[2])
		}
		select {}
	}
}

// Serve answers requests at a port of the loopback, and returns the URL.
func Serve(handler http.Handler) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go http.Serve(listener, handler)
	return "http://" + listener.Addr().String()
}

// Start sends requests to url from a number of clients, with a number of keys.
func Start(url string, clients, keys int) { Send(url, Load{Clients: clients, Keys: keys}) }

// Send sends requests to url.
func Send(url string, loads ...Load) {
	self, err := os.Executable()
	harness.Check(err)
	text, err := json.Marshal(loads)
	harness.Check(err)
	command := exec.Command(self, role, url, string(text))
	clientInput, err = command.StdinPipe() // it closes when this process ends
	harness.Check(err)
	harness.Check(command.Start())
}

func (l Load) send(url string) {
	if l.Keys == 0 {
		l.Keys = 1000
	}
	client := &http.Client{
		Transport: &http.Transport{
			MaxIdleConnsPerHost: l.Clients + l.PerSecond,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		},
		Timeout: l.Timeout,
	}
	get := func(key int) {
		answer, err := client.Get(fmt.Sprintf("%s%s/%d", url, l.Path, key%l.Keys))
		if err != nil {
			return
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	for i := 0; i < l.Clients; i++ {
		go func(key int) {
			for ; ; key++ {
				get(key)
			}
		}(i * l.Keys / l.Clients)
	}
	if l.PerSecond > 0 {
		go l.pace(get)
	}
}

// pace sends requests at their times, also if earlier ones were late.
func (l Load) pace(get func(key int)) {
	length := l.Burst
	if length == 0 {
		length = time.Second
	}
	for start, key := time.Now(), 0; ; key++ {
		second, number := key/l.PerSecond, key%l.PerSecond
		due := time.Duration(second)*time.Second + length*time.Duration(number)/time.Duration(l.PerSecond)
		time.Sleep(due - time.Since(start))
		go get(key)
	}
}
