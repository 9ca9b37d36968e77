// Plugged does all its work in a plugin, the file that its argument names: goroutines hold a lock
// for three milliseconds each, one after the other, in the plugin's own copy of the runtime's code.
//
// Protocol: it prints "ready PID"; at a line it opens the plugin, starts the goroutines and prints
// "opened". It ends when its input closes.
package main

import (
	"fmt"
	"os"
	"plugin"
	"sync"

	"ebpfprof.test/harness"
)

func main() {
	harness.Ready()
	if harness.Next() {
		open()
		fmt.Println("opened")
		harness.AwaitEnd()
	}
}

func open() {
	opened, err := plugin.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	work, err := opened.Lookup("Work")
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	for i := 0; i < 3; i++ {
		go work.(func(*sync.Mutex))(&mu)
	}
}
