// Sleeper does nothing: it prints "ready PID" and ends when its input closes.
package main

import "ebpfprof.test/harness"

func main() {
	harness.Ready()
	harness.AwaitEnd()
}
