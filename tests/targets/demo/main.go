// Demo is a small shop: an HTTP service with the kinds of contention that real services have,
// and clients of its own that keep it busy. It knows nothing of profiling.
//
// It prints "ready PID" and runs until its input closes or a signal ends it.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	shop := NewShop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		giveUp(err)
	}
	server := &http.Server{Handler: shop.Routes(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); err != http.ErrServerClosed {
			giveUp(err)
		}
	}()
	go shop.config.ReloadForever()
	go shop.audit.WriteForever()
	for i := 0; i < customers; i++ {
		go goShopping(listener.Addr().String(), int64(i))
	}

	fmt.Println("ready", os.Getpid())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	go func() {
		// Only the end of the input matters.
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended <- syscall.SIGTERM
	}()
	<-ended
}
