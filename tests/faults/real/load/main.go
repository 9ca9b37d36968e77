// Load runs a server that others wrote, in a cluster or alone, and uses it as its clients do.
//
//	load SETUP PROGRAMS [COMMAND...]
//
// PROGRAMS is the folder of the servers. COMMAND is put before the command line of the server that
// is explained, to start it in a container. Load prints "ready PID" of that server once it answers
// requests, and ends with all servers when its input closes.
package main

import (
	"fmt"
	"os"
	"runtime"

	"ebpfprof.test/harness"
)

var setups = map[string]func(*fleet) int{
	"caddy":       caddyProxy,
	"caddyfiles":  caddyFiles,
	"etcd":        func(f *fleet) int { return etcd(f, 1) },
	"etcdcluster": func(f *fleet) int { return etcd(f, 3) },
	"nats":        func(f *fleet) int { return nats(f, 1) },
	"natscluster": func(f *fleet) int { return nats(f, 3) },
	"prometheus":  prometheus,
}

func main() {
	runtime.LockOSThread() // children end with the thread that started them
	setup := setups[os.Args[1]]
	f := &fleet{programs: os.Args[2], enter: os.Args[3:], scratch: os.TempDir()}
	fmt.Println("ready", setup(f))
	harness.AwaitEnd()
	f.isEnding.Store(true)
}
