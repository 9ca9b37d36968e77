package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A bookingDesk writes each booking to a file of its own and waits until the disk has it.
type bookingDesk struct{ folder *os.File }

//go:noinline
func (d *bookingDesk) store(booking []byte) {
	file, err := os.CreateTemp("", "booking-")
	harness.Check(err)
	defer file.Close()
	harness.Check(os.Remove(file.Name()))
	_, err = file.Write(booking)
	harness.Check(err)
	harness.Check(file.Sync())
}

func (d *bookingDesk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	booking := bytes.Repeat([]byte(r.URL.Path), 2000)
	d.store(booking)
	fmt.Fprint(w, len(booking))
}

func init() { register("fsync", serveBookingDesk) }

func serveBookingDesk() { underLoad(&bookingDesk{}, traffic.Load{Clients: 6}) }
