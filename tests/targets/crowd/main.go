// Crowd has so many goroutines, by its argument, which wait nearly all of the time, each by itself:
// some ten milliseconds each time, or as long as is asked for, however busy the machine is. So many
// more never stop waiting. Beside them, pairs of goroutines may pass numbers as fast as they can.
//
// Protocol: it prints "ready PID" and starts. It ends when its input closes.
package main

import (
	"flag"
	"time"

	"ebpfprof.test/harness"
)

var (
	goroutines = flag.Int("goroutines", 10, "how many wait at a time")
	standing   = flag.Int("standing", 0, "how many more wait for ever")
	busy       = flag.Int("busy", 0, "how many pairs of goroutines pass numbers all the time")
	each       = flag.Duration("each", 10*time.Millisecond, "how long a wait lasts")
)

func main() {
	flag.Parse()
	gates := make([]chan bool, *goroutines)
	for i := range gates {
		gates[i] = make(chan bool, 1)
		go wait(gates[i])
	}
	for i := 0; i < *standing; i++ {
		go wait(nil)
	}
	for i := 0; i < *busy; i++ {
		numbers := make(chan int)
		go pass(numbers)
		go take(numbers)
	}
	go wake(gates)
	harness.Ready()
	harness.AwaitEnd()
}

func wait(gate <-chan bool) {
	for range gate {
	}
}

func pass(numbers chan<- int) {
	for {
		numbers <- 1
	}
}

func take(numbers <-chan int) {
	for range numbers {
	}
}

// wake itself never waits for a channel.
func wake(gates []chan bool) {
	for {
		time.Sleep(*each)
		for _, gate := range gates {
			select {
			case gate <- true:
			default:
			}
		}
	}
}
