package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Shop answers requests.
type Shop struct {
	sessions Sessions
	letters  chan string
}

// NewShop opens a shop with four workers who write letters to customers.
func NewShop() *Shop {
	shop := &Shop{
		sessions: Sessions{seen: map[string]time.Time{}},
		letters:  make(chan string),
	}
	for i := 0; i < 4; i++ {
		go shop.letterWorker()
	}
	return shop
}

// ServeHTTP shows a page, and thanks each customer by letter now and then.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	customer := r.URL.Query().Get("customer")
	visits := s.sessions.Touch(customer)
	if visits%100 == 0 {
		s.letters <- customer
	}
	fmt.Fprintln(w, "Welcome for the", visits, "th time,", customer)
}

func (s *Shop) letterWorker() {
	for range s.letters {
		time.Sleep(time.Millisecond)
	}
}

// Sessions has all customers so far, and keeps a journal of their visits.
type Sessions struct {
	mu      sync.Mutex
	seen    map[string]time.Time
	visits  int
	journal Journal
}

// Journal is a file on a disk that takes a millisecond to write.
type Journal struct{}

// Append returns once the line is on the disk.
func (Journal) Append(line string) { time.Sleep(time.Millisecond) }
