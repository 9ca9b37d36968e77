// Faults is many small services under load: each has one fault that services have in production,
// or none. `faults NAME` runs one of them. tests/faults runs `ebpfprof explain` on each.
//
// A service is in the file of its name. It has names as in a real service, and registers itself.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"

	"ebpfprof.test/harness"
)

const peerRole = "peer"

var (
	programs = map[string]func(){}
	peers    = map[string]func() string{}
	// The collector would close a peer's input if nothing kept it.
	peerInputs []io.Closer
)

// register adds a program. run starts the service and its load, and returns when the fault shows;
// then main says that the program is ready.
func register(name string, run func()) { programs[name] = run }

// registerPeer adds what a service depends on: serve starts a server, and returns its address.
func registerPeer(name string, serve func() string) { peers[name] = serve }

// startPeer starts a peer in another process, and returns its address. The process ends with this
// one.
func startPeer(name string) string {
	self, err := os.Executable()
	harness.Check(err)
	command := exec.Command(self, peerRole, name)
	input, err := command.StdinPipe()
	harness.Check(err)
	peerInputs = append(peerInputs, input)
	output, err := command.StdoutPipe()
	harness.Check(err)
	harness.Check(command.Start())
	address, err := bufio.NewReader(output).ReadString('\n')
	harness.Check(err)
	return strings.TrimSpace(address)
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == peerRole {
		fmt.Println(peers[os.Args[2]]())
		harness.AwaitEnd()
		return
	}
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		var names []string
		for name := range programs {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "usage: faults NAME, one of %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	programs[os.Args[1]]()
	harness.Ready()
	harness.AwaitEnd()
}
