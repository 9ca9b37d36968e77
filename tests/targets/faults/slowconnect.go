package main

import (
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

func init() {
	registerPeer("overloaded", acceptSlowly)
	register("slowconnect", serveMetering)
}

// acceptSlowly accepts 20 connections a second. The kernel drops others when its queue is full, so
// their connects take a second or more.
func acceptSlowly() string {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	harness.Check(err)
	harness.Check(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	harness.Check(syscall.Listen(socket, 1))
	name, err := syscall.Getsockname(socket)
	harness.Check(err)
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			accepted, _, err := syscall.Accept(socket)
			if err != syscall.EINTR {
				harness.Check(err)
				harness.Check(syscall.Close(accepted))
			}
		}
	}()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
}

// A meterReader connects to a collector for each reading that it pushes.
type meterReader struct {
	database  *sql.DB
	collector string
}

//go:noinline
func (m *meterReader) push(reading string) error {
	connection, err := net.DialTimeout("tcp", m.collector, 5*time.Second)
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = fmt.Fprintln(connection, reading)
	return err
}

//go:noinline
func (m *meterReader) serveReading(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), m.database, "10ms SELECT * FROM meters")
	if err == nil {
		err = m.push(row)
	}
	reply(w, row, err)
}

func serveMetering() {
	meters := &meterReader{database: openDatabase(50), collector: startPeer("overloaded")}
	url := traffic.Serve(http.HandlerFunc(meters.serveReading))
	traffic.Send(url, traffic.Load{Path: "/reading", PerSecond: 30})
}
