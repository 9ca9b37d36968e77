package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A turnstileHub reads the turnstiles of a stadium with blocking system calls: each request keeps
// a thread for as long as its turnstile says nothing.
type turnstileHub struct {
	turnstiles []int // file descriptors
	requests   atomic.Int64
}

const (
	turnstiles    = 48
	turnstilePace = 60 * time.Millisecond
)

//go:noinline
func (h *turnstileHub) awaitVisitor(turnstile int) string {
	line := make([]byte, 16)
	size, err := syscall.Read(h.turnstiles[turnstile], line)
	for err == syscall.EINTR {
		size, err = syscall.Read(h.turnstiles[turnstile], line)
	}
	harness.Check(err)
	return string(line[:size])
}

func (h *turnstileHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, h.awaitVisitor(int(h.requests.Add(1))%turnstiles))
}

func openTurnstiles(folder string) (files []int) {
	for i := 0; i < turnstiles; i++ {
		path := filepath.Join(folder, fmt.Sprint("turnstile", i))
		if err := syscall.Mkfifo(path, 0o600); err != syscall.EEXIST {
			harness.Check(err)
		}
		file, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0) // for reading alone, it would block
		harness.Check(err)
		files = append(files, file)
	}
	return files
}

// stadium lets a visitor through each of its turnstiles now and then.
func stadium() string {
	folder, err := os.MkdirTemp("", "stadium-")
	harness.Check(err)
	files := openTurnstiles(folder)
	go func() {
		for range time.Tick(turnstilePace) {
			for _, file := range files {
				syscall.Write(file, []byte("visitor"))
			}
		}
	}()
	return folder
}

func init() {
	register("syscalls", serveTurnstiles)
	registerPeer("stadium", stadium)
}

func serveTurnstiles() {
	folder := startPeer("stadium")
	hub := &turnstileHub{turnstiles: openTurnstiles(strings.TrimSpace(folder))}
	harness.Check(os.RemoveAll(folder))
	underLoad(hub, traffic.Load{Clients: turnstiles})
}
