// Cpuload measures itself while it is profiled: as a loop that only computes, as an HTTP server,
// and as the client that keeps this server busy.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	profile on|off   starts or ends Go's own CPU profile, which is thrown away; prints "profile"
//	go               a loop computes; prints "ns NANOSECONDS" that one round took
//	serve            prints "address HOST:PORT" and serves HTTP there until the end
//	load ADDRESS MS  sends requests on 8 connections; prints "rate REQUESTS" per second
//
// It ends when its input closes.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		switch words[0] {
		case "profile":
			if words[1] == "on" {
				check(pprof.StartCPUProfile(io.Discard))
			} else {
				pprof.StopCPUProfile()
			}
			fmt.Println("profile")
		case "go":
			fmt.Println("ns", compute())
		case "serve":
			fmt.Println("address", serve())
		case "load":
			ms, err := strconv.Atoi(words[2])
			check(err)
			fmt.Println("rate", load("http://"+words[1], time.Duration(ms)*time.Millisecond))
		default:
			panic("cpuload: no such command")
		}
	}
}

const rounds = 2000

// compute does some of everything, deep in calls, and tells the nanoseconds of a round.
func compute() int64 {
	began := time.Now()
	for i := 0; i < rounds; i++ {
		nested(20, i)
	}
	return time.Since(began).Nanoseconds() / rounds
}

//go:noinline
func nested(depth, seed int) int {
	if depth > 0 {
		return nested(depth-1, seed) + 1
	}
	counts := map[string]int{}
	numbers := make([]int, 500)
	for i := range numbers {
		numbers[i] = i * 7919 % 500
		counts[strconv.Itoa(i%50)]++
	}
	sort.Ints(numbers)
	sum := sha256.Sum256(make([]byte, 1<<14))
	return len(counts) + numbers[seed%500] + int(sum[0])
}

func serve() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	handler := func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{"path": r.URL.Path, "agent": r.UserAgent(), "n": nested(5, 1)}
		check(json.NewEncoder(w).Encode(answer))
	}
	go func() { check(http.Serve(listener, http.HandlerFunc(handler))) }()
	return listener.Addr().String()
}

const connections = 8

func load(url string, duration time.Duration) float64 {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	var all sync.WaitGroup
	counts := make([]int, connections)
	began := time.Now()
	for i := range counts {
		all.Add(1)
		go func(count *int) {
			defer all.Done()
			for time.Since(began) < duration {
				answer, err := client.Get(url)
				check(err)
				_, err = io.Copy(io.Discard, answer.Body)
				check(err)
				check(answer.Body.Close())
				*count++
			}
		}(&counts[i])
	}
	all.Wait()
	total := 0
	for _, count := range counts {
		total += count
	}
	return float64(total) / time.Since(began).Seconds()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cpuload:", err)
		os.Exit(1)
	}
}
