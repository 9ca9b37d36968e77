// Sleeper does nothing: it prints "ready PID" and ends when its input closes.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	fmt.Println("ready", os.Getpid())
	// Only the end of the input matters.
	_, _ = io.Copy(io.Discard, os.Stdin)
}
