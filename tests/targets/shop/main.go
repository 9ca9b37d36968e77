// Shop is the service of docs/tutorial.md: a web shop with a contention bug, and customers of its
// own who keep it busy. It knows nothing of profiling. With the build tag "fixed" the bug is gone.
//
// It prints "ready PID". To every line of input it answers how its customers were served since
// the line before. It ends when its input closes.
package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const customers = 20

func main() {
	shop := NewShop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		giveUp(err)
	}
	server := &http.Server{Handler: shop, ReadHeaderTimeout: 5 * time.Second}
	go func() { giveUp(server.Serve(listener)) }()
	for i := 0; i < customers; i++ {
		go goShopping(listener.Addr().String(), i)
	}
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for served.reset(); input.Scan(); {
		fmt.Println(served.reset())
	}
}

func giveUp(err error) {
	fmt.Fprintln(os.Stderr, "shop:", err)
	os.Exit(1)
}
