package main

import (
	"context"
	"database/sql"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A ticketOffice gives each request a number, which one goroutine reserves after the other.
type ticketOffice struct {
	numbers  chan string
	database *sql.DB
}

//go:noinline
func (o *ticketOffice) reserve() {
	for {
		number, _ := query(context.Background(), o.database, "6ms UPDATE numbers")
		o.numbers <- number
	}
}

//go:noinline
func (o *ticketOffice) next() string { return <-o.numbers }

//go:noinline
func (o *ticketOffice) serveTicket(w http.ResponseWriter, r *http.Request) {
	number := o.next()
	row, err := query(r.Context(), o.database, "8ms INSERT INTO tickets")
	reply(w, number+row, err)
}

func serveTicketNumbers() {
	office := &ticketOffice{numbers: make(chan string, 4), database: openDatabase(50)}
	go office.reserve()
	url := traffic.Serve(http.HandlerFunc(office.serveTicket))
	traffic.Send(url, traffic.Load{Path: "/ticket", Clients: 6})
}

func init() { register("slowproducer", serveTicketNumbers) }
