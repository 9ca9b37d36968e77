// Pause does nothing and reads nothing: it is the first container of a pod. It prints "ready PID",
// and ends at SIGTERM.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"ebpfprof.test/harness"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	harness.Ready()
	<-end
}
