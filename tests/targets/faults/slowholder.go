package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A seatPlan holds its lock while a payment service confirms a seat, which takes about 30 ms. Most
// requests only want to know which seats are free.
type seatPlan struct {
	mu       sync.Mutex
	taken    map[int]string
	payments *rowsConn
}

//go:noinline
func (p *seatPlan) reserve(seat int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	confirmation, err := p.confirm(seat)
	p.taken[seat] = confirmation
	return err
}

//go:noinline
func (p *seatPlan) confirm(seat int) (string, error) {
	return p.payments.exchange(fmt.Sprint("30ms PAY ", seat))
}

//go:noinline
func (p *seatPlan) isFree(seat int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken[seat] == ""
}

type boxOffice struct {
	plan  *seatPlan
	shows *sql.DB
}

//go:noinline
func (b *boxOffice) serveReservation(w http.ResponseWriter, r *http.Request) {
	reply(w, "reserved", b.plan.reserve(keyOf(r)))
}

//go:noinline
func (b *boxOffice) serveSeat(w http.ResponseWriter, r *http.Request) {
	row, err := query(r.Context(), b.shows, "12ms SELECT title FROM shows")
	reply(w, fmt.Sprint(row, b.plan.isFree(keyOf(r))), err)
}

func serveTickets() {
	payments, err := dialRows(startPeer("database"))
	harness.Check(err)
	office := &boxOffice{
		plan:  &seatPlan{taken: map[int]string{}, payments: payments},
		shows: openDatabase(50),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/reservation/", office.serveReservation)
	mux.HandleFunc("/seat/", office.serveSeat)
	traffic.Send(traffic.Serve(mux),
		traffic.Load{Path: "/reservation", PerSecond: 17},
		traffic.Load{Path: "/seat", PerSecond: 60},
	)
}

func init() { register("slowholder", serveTickets) }
