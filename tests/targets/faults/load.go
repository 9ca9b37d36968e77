package main

import (
	"net"
	"net/http"
	"sync/atomic"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// underLoad serves requests, sends them, and returns when a few are answered.
func underLoad(service http.Handler, loads ...traffic.Load) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	listenUnderLoad(listener, "http", service, loads...)
}

// listenUnderLoad does that for a listener, with the scheme of its URL.
func listenUnderLoad(
	listener net.Listener, scheme string, service http.Handler, loads ...traffic.Load,
) {
	var answered atomic.Int64
	server := &http.Server{Handler: service, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			answered.Add(1)
		}
	}}
	go server.Serve(listener)
	traffic.Send(scheme+"://"+listener.Addr().String(), loads...)
	awaitCount(&answered, 20)
}
