// Package peer runs what a service depends on in another process of the same program.
package peer

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"ebpfprof.test/harness"
)

const role = "peer"

// The collector would close the peer's input if nothing kept it.
var input io.Closer

// Run serves if this process is the peer, and returns then when it must end. Main calls it first.
func Run(serve func() string) bool {
	if len(os.Args) != 2 || os.Args[1] != role {
		return false
	}
	fmt.Println(serve())
	harness.AwaitEnd()
	return true
}

// Start starts the peer, and returns the address that its serve returned.
func Start() string {
	self, err := os.Executable()
	harness.Check(err)
	command := exec.Command(self, role)
	input, err = command.StdinPipe()
	harness.Check(err)
	output, err := command.StdoutPipe()
	harness.Check(err)
	harness.Check(command.Start())
	address, err := bufio.NewReader(output).ReadString('\n')
	harness.Check(err)
	return strings.TrimSpace(address)
}
