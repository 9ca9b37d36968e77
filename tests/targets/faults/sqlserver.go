package main

import (
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A bookingStore has twenty connections, of which about fifteen are in use.
type bookingStore struct{ database *sql.DB }

//go:noinline
func (s *bookingStore) serveBooking(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), s.database, "40ms SELECT * FROM bookings")
	reply(w, row, err)
}

func serveBookings() {
	bookings := &bookingStore{database: openDatabase(20)}
	url := traffic.Serve(http.HandlerFunc(bookings.serveBooking))
	traffic.Send(url,
		traffic.Load{Path: "/booking", Clients: 14},
		traffic.Load{Path: "/booking", PerSecond: 30},
	)
}

func init() { register("sqlserver", serveBookings) }
