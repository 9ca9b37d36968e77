// Package traffic gives a service HTTP requests from another process, so that the service's own
// profile has no waits of clients. The other process is the same program, started again, and ends
// with the service.
package traffic

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
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
	// Clients send their next request when they have the answer.
	Clients int
	// PerSecond requests are sent at random times, whether answers come or not.
	PerSecond int
	// With Burst, all requests of a period are sent at once, within that time. The period is Every,
	// or a second if that is 0.
	Burst, Every time.Duration
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
	random := rand.New(rand.NewSource(1))
	start, due := time.Now(), time.Duration(0)
	if l.Every == 0 {
		l.Every = time.Second
	}
	inBurst := l.PerSecond * int(l.Every) / int(time.Second)
	for key := 0; ; key++ {
		if l.Burst == 0 {
			due += time.Duration(random.ExpFloat64() * float64(time.Second) / float64(l.PerSecond))
		} else {
			due = l.Every*time.Duration(key/inBurst) + l.Burst*time.Duration(key%inBurst)/time.Duration(inBurst)
		}
		time.Sleep(due - time.Since(start))
		go get(key)
	}
}
