// Package traffic gives a service HTTP requests from another process, so that the service's own
// profile has no waits of clients. The other process is the same program, started again, and ends
// with the service.
package traffic

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"

	"ebpfprof.test/harness"
)

const role = "traffic"

// The collector would close the client's input if nothing kept it.
var clientInput io.Closer

// A program that was started as a client never gets to its main.
func init() {
	if len(os.Args) == 5 && os.Args[1] == role {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		request(os.Args[2], harness.Number(os.Args[3]), harness.Number(os.Args[4]))
	}
}

// Serve answers requests at a port of the loopback, and returns the URL.
func Serve(handler http.Handler) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go http.Serve(listener, handler)
	return "http://" + listener.Addr().String()
}

// Start sends requests to url from a number of clients. Each sends its next request when it has
// its answer: GET url/N, where N counts from 0 to keys-1 again and again.
func Start(url string, clients, keys int) {
	self, err := os.Executable()
	harness.Check(err)
	command := exec.Command(self, role, url, strconv.Itoa(clients), strconv.Itoa(keys))
	clientInput, err = command.StdinPipe() // it closes when this process ends
	harness.Check(err)
	harness.Check(command.Start())
}

func request(url string, clients, keys int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	for i := 0; i < clients; i++ {
		go func(key int) {
			for ; ; key++ {
				answer, err := client.Get(fmt.Sprintf("%s/%d", url, key%keys))
				if err != nil {
					continue
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		}(i * keys / clients)
	}
	select {}
}
