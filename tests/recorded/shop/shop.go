package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"sync"
	"time"
)

const slow = 300 * time.Microsecond // to find a price, under the lock

// prices is asked by each request, and holds its lock for too long.
type prices struct {
	mu    sync.Mutex
	known map[string]int
}

func (p *prices) find(item string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	time.Sleep(slow)
	return p.known[item]
}

func (p *prices) raise(item string) {
	p.mu.Lock()
	p.known[item]++
	p.mu.Unlock()
}

type order struct {
	tenant string
	price  int
	done   chan<- struct{}
}

type shop struct {
	prices  prices
	orders  chan order
	address string
	raises  *time.Ticker
}

func openShop() *shop {
	s := &shop{orders: make(chan order), raises: time.NewTicker(time.Hour)}
	s.prices.known = map[string]int{"tea": 3}
	for range 2 {
		go s.worker()
	}
	go s.raiseLoop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s.address = listener.Addr().String()
	handler := http.NewServeMux()
	handler.HandleFunc("/buy", s.buy)
	go http.Serve(listener, handler)
	return s
}

// worker packs orders.
func (s *shop) worker() {
	for order := range s.orders {
		time.Sleep(slow / 3)
		close(order.done)
	}
}

// raiseLoop raises a price from time to time.
func (s *shop) raiseLoop() {
	for range s.raises.C {
		s.prices.raise("tea")
	}
}

func (s *shop) buy(answer http.ResponseWriter, request *http.Request) {
	tenant := request.URL.Query().Get("tenant")
	labels := pprof.Labels("route", "/buy", "tenant", tenant)
	pprof.Do(request.Context(), labels, func(context.Context) {
		price := s.prices.find("tea")
		done := make(chan struct{})
		s.orders <- order{tenant, price, done}
		<-done
		fmt.Fprintln(answer, price)
	})
}

// open lets prices rise until the shop closes. A closed one stands still.
func (s *shop) open() (close func()) {
	s.raises.Reset(20 * time.Millisecond)
	return func() { s.raises.Reset(time.Hour) }
}

func (s *shop) serve(requests int) {
	defer s.open()()
	var customers sync.WaitGroup
	for _, tenant := range []string{"blue", "green", "red"} {
		for range 2 {
			customers.Add(1)
			go func() {
				defer customers.Done()
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for range requests {
					ask(client, "http://"+s.address+"/buy?tenant="+tenant)
				}
			}()
		}
	}
	customers.Wait()
}

func ask(client *http.Client, url string) {
	answer, err := client.Get(url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

func (s *shop) rest(length time.Duration) {
	defer s.open()()
	time.Sleep(length)
}
