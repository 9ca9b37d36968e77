// Stops has goroutines that stop running at different rates, and log how often they did so: after
// each operation they read their own g.trackingSeq, so that no stop is missed.
//
// The main goroutine logs its own stops, too.
//
// Protocol: it prints "ready PID" and reads "OFFSET GOID", the offsets of g.trackingSeq and g.goid.
// It prints "parked" once its goroutines wait. To each further line "go" they do some operations,
// and it prints "parked" again. To "log" it prints one line of JSON, goid: stops. It ends when its
// input closes.
package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

func getg() unsafe.Pointer

// operations of a round, by goroutine: with what the runtime adds, less than 256 stops.
var operations = []int{5, 40, 80, 120, 160}

// counter counts the stops of the goroutine that uses it.
type counter struct {
	sequence *uint8
	last     uint8
	stops    int
}

func (c *counter) look() {
	now := *c.sequence
	c.stops += int(now - c.last)
	c.last = now
}

func main() {
	harness.Ready()
	harness.Next()
	words := harness.Words()
	offset, goid := harness.Number(words[0]), harness.Number(words[1])
	begin := make([]chan struct{}, len(operations))
	stops := map[string]int{}
	own := counter{sequence: (*uint8)(unsafe.Add(getg(), offset))}
	own.last = *own.sequence
	var mu sync.Mutex
	var working sync.WaitGroup
	for number := range operations {
		begin[number] = make(chan struct{})
		rounds, share := begin[number], operations[number]
		go func() {
			g := getg()
			counted := counter{sequence: (*uint8)(unsafe.Add(g, offset))}
			name := strconv.FormatUint(*(*uint64)(unsafe.Add(g, goid)), 10)
			for first := true; ; first = false {
				<-rounds
				if first {
					counted.last = *counted.sequence
				}
				for i := 0; i < share; i++ {
					counted.look()
					if i%4 == 3 {
						runtime.Gosched()
					} else {
						time.Sleep(50 * time.Microsecond)
					}
				}
				mu.Lock()
				counted.look()
				stops[name] = counted.stops
				mu.Unlock()
				working.Done()
			}
		}()
	}
	for {
		time.Sleep(50 * time.Millisecond)
		own.look()
		fmt.Println("parked")
		if !harness.Next() {
			return
		}
		own.look()
		if harness.Command() == "log" {
			break
		}
		working.Add(len(begin))
		for _, rounds := range begin {
			rounds <- struct{}{}
		}
		working.Wait()
	}
	stops["main"] = own.stops
	harness.Say(json.Marshal(stops))
	for harness.Next() {
	}
}
