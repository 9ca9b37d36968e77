// Stops has goroutines that stop running at different rates, and log how often they did so: after
// each operation they read their own g.trackingSeq, so that no stop is missed.
//
// Protocol: it prints "ready PID" and reads "OFFSET GOID MILLISECONDS", the offsets of
// g.trackingSeq and g.goid. It prints "parked" once its goroutines wait for the next line; then they
// work for that time. It prints "stopped" and one line of JSON, goid: stops. They wait until its
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

// pauses are between operations: the shortest makes 20,000 operations a second at most.
var pauses = []time.Duration{
	10 * time.Millisecond, 2 * time.Millisecond, 500 * time.Microsecond, 200 * time.Microsecond,
	50 * time.Microsecond,
}

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
	offset, goid, length := harness.Number(words[0]), harness.Number(words[1]), harness.Number(words[2])
	begin := make(chan struct{})
	var mu sync.Mutex
	var working sync.WaitGroup
	stops := map[string]int{}
	for number := range pauses {
		pause := pauses[number]
		working.Add(1)
		go func() {
			g := getg()
			counted := counter{sequence: (*uint8)(unsafe.Add(g, offset))}
			name := strconv.FormatUint(*(*uint64)(unsafe.Add(g, goid)), 10)
			<-begin
			counted.last = *counted.sequence
			end := time.Now().Add(time.Duration(length) * time.Millisecond)
			for i := 0; time.Now().Before(end); i++ {
				if i%4 == 3 {
					runtime.Gosched()
				} else {
					time.Sleep(pause)
				}
				counted.look()
			}
			mu.Lock()
			counted.look()
			stops[name] = counted.stops
			mu.Unlock()
			working.Done()
			select {}
		}()
	}
	time.Sleep(100 * time.Millisecond)
	fmt.Println("parked")
	harness.Next()
	close(begin)
	working.Wait()
	time.Sleep(20 * time.Millisecond)
	fmt.Println("stopped")
	harness.Say(json.Marshal(stops))
	for harness.Next() {
	}
}
