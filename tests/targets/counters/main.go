// Counters collects, contends for a lock, keeps its processors busy and sets timers, and prints
// what its own runtime counts of that.
//
// Protocol: it prints "ready PID". "work" does all of that once, and it prints "done"; "read" has it
// print one line of JSON. It ends when its input closes.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

var kept []*time.Timer
var sink [][]byte

func work() {
	var workers sync.WaitGroup
	var mu sync.Mutex
	for range make([]struct{}, 16) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for round := 0; round < 200; round++ {
				mu.Lock()
				sink = append(sink, make([]byte, 4096))
				if len(sink) > 1000 {
					sink = nil
				}
				until := time.Now().Add(20 * time.Microsecond)
				for time.Now().Before(until) {
				}
				mu.Unlock()
				runtime.Gosched()
			}
		}()
	}
	workers.Wait()
	for range make([]struct{}, 3) {
		runtime.GC()
	}
	for range make([]struct{}, 100) {
		kept = append(kept, time.AfterFunc(time.Hour, func() {}))
	}
}

// counted is a histogram: how many, and a bucket's limits for 99 of 100 of them.
type counted struct {
	Total     uint64
	Low, High float64
}

func count(histogram *metrics.Float64Histogram) counted {
	var of counted
	for _, number := range histogram.Counts {
		of.Total += number
	}
	seen := uint64(0)
	for bucket, number := range histogram.Counts {
		seen += number
		if number > 0 && float64(seen) >= 0.99*float64(of.Total) {
			of.Low, of.High = finite(histogram.Buckets[bucket]), finite(histogram.Buckets[bucket+1])
			break
		}
	}
	return of
}

func finite(value float64) float64 {
	if math.IsInf(value, 0) {
		return 0
	}
	return value
}

func main() {
	harness.Ready()
	for harness.Next() {
		if harness.Command() == "work" {
			work()
			fmt.Println("done")
		} else {
			read()
		}
	}
}

func read() {
	values := map[string]interface{}{}
	var samples []metrics.Sample
	for _, each := range metrics.All() {
		samples = append(samples, metrics.Sample{Name: each.Name})
	}
	metrics.Read(samples)
	for _, each := range samples {
		switch each.Value.Kind() {
		case metrics.KindUint64:
			values[each.Name] = each.Value.Uint64()
		case metrics.KindFloat64:
			values[each.Name] = each.Value.Float64()
		case metrics.KindFloat64Histogram:
			values[each.Name] = count(each.Value.Float64Histogram())
		}
	}
	var statistics debug.GCStats
	debug.ReadGCStats(&statistics)
	values["pauses"] = statistics.Pause
	threads, _ := runtime.ThreadCreateProfile(nil)
	values["threads"] = threads
	line, _ := json.Marshal(values)
	fmt.Println(string(line))
}
