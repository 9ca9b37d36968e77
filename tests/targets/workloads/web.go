package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"ebpfprof.test/harness"
)

const (
	connections = 16
	products    = 100
)

// site is a service with typical shared data: prices behind a lock, a log behind a channel.
type site struct {
	mu      sync.RWMutex
	prices  map[int]int
	entries chan string
	logged  int
}

type offer struct {
	Product int    `json:"product"`
	Price   int    `json:"price"`
	Agent   string `json:"agent"`
}

func serve() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	s := &site{prices: map[int]int{}, entries: make(chan string, 16)}
	go s.log()
	go func() { harness.Check(http.Serve(listener, s)) }()
	return listener.Addr().String()
}

// ServeHTTP answers with offers, changes one price in ten and logs.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.URL.Query().Get("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if id%10 == 0 {
		s.change(id % products)
	}
	offers := make([]offer, 10)
	for i := range offers {
		product := (id + i) % products
		offers[i] = offer{product, s.price(product), r.UserAgent()}
	}
	s.entries <- r.URL.Path
	w.Header().Set("Content-Type", "application/json")
	harness.Check(json.NewEncoder(w).Encode(offers))
}

func (s *site) price(product int) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.prices[product]
}

func (s *site) change(product int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prices[product] += compute(product) % 10
}

func (s *site) log() {
	for range s.entries {
		s.logged++
	}
}

// load is the client. It works as little as possible, since it shares the processors.
func load(address string, requests int) {
	var all sync.WaitGroup
	for i := 0; i < connections; i++ {
		first, count := requests*i/connections, share(requests, i, connections)
		all.Add(1)
		go func() {
			defer all.Done()
			harness.Check(visit(address, first, count))
		}()
	}
	all.Wait()
}

func visit(address string, first, count int) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	answers := bufio.NewReader(connection)
	for id := first; id < first+count; id++ {
		const request = "GET /offers?id=%d HTTP/1.1\r\nHost: site\r\nUser-Agent: load\r\n\r\n"
		if _, err := fmt.Fprintf(connection, request, id); err != nil {
			return err
		}
		if err := skipAnswer(answers); err != nil {
			return err
		}
	}
	return nil
}

var contentLength = []byte("Content-Length: ")

func skipAnswer(answers *bufio.Reader) error {
	length := 0
	for number := 0; ; number++ {
		line, err := answers.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if number == 0 && !bytes.HasSuffix(line, []byte(" 200 OK")) {
			return fmt.Errorf("the server said %q", line)
		}
		if bytes.HasPrefix(line, contentLength) {
			if length, err = strconv.Atoi(string(line[len(contentLength):])); err != nil {
				return err
			}
		}
		if len(line) == 0 {
			_, err := io.CopyN(io.Discard, answers, int64(length))
			return err
		}
	}
}
