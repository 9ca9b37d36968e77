package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// goShopping visits the shop for ever, over one connection of its own: the shop's profile would
// show the waits of http.Client.
func goShopping(address string, number int) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		giveUp(err)
	}
	responses := bufio.NewReader(connection)
	for {
		start := time.Now()
		if err := visit(connection, responses, number); err != nil {
			giveUp(err)
		}
		served.add(time.Since(start))
		time.Sleep(5 * time.Millisecond)
	}
}

func visit(connection net.Conn, responses *bufio.Reader, number int) error {
	_, err := fmt.Fprintf(connection, "GET /?customer=%d HTTP/1.1\r\nHost: shop\r\n\r\n", number)
	if err != nil {
		return err
	}
	response, err := http.ReadResponse(responses, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// service counts answers by the milliseconds that they took.
type service struct {
	since atomic.Int64
	took  [1000]atomic.Int64
}

var served service

func (s *service) add(took time.Duration) {
	ms := int(took.Milliseconds())
	if ms >= len(s.took) {
		ms = len(s.took) - 1
	}
	s.took[ms].Add(1)
}

// reset returns a summary since its last call.
func (s *service) reset() string {
	now := time.Now().UnixNano()
	seconds := float64(now-s.since.Swap(now)) / 1e9
	var counts [len(s.took)]int64
	var all int64
	for ms := range counts {
		counts[ms] = s.took[ms].Swap(0)
		all += counts[ms]
	}
	within := func(share float64) int {
		var sum int64
		for ms, count := range counts {
			if sum += count; float64(sum) >= share*float64(all) {
				return ms + 1
			}
		}
		return len(counts)
	}
	return fmt.Sprintf("%.0f requests a second, half of them within %d ms, 99 %% within %d ms",
		float64(all)/seconds, within(0.5), within(0.99))
}
