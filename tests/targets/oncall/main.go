// Oncall has goroutines that wait for what people on call ask about: sockets, locks, system calls,
// the end of a sleep.
//
// Protocol: it prints one line of JSON, the facts by the name of the function that waits, once all
// of them wait; then "ready PID". Then it obeys the lines that it reads:
//
//	deadlock  makes three groups of goroutines that wait for each other; prints a line of JSON
//	leak N    starts N goroutines that wait for ever at one line; prints "leaked"
//	mixed N   starts N goroutines that wait for ever where three others wait that it wakes; prints
//	          a line of JSON, those of the three that it started
//	send N    starts N goroutines that send, one after the other; prints "sent"
//	receive N receives from N of them; prints "received"
//	stuck     starts goroutines that can never go on; prints "stuck"
//	profile   has the runtime look for leaked goroutines; prints "profiled"
//	turn      wakes the goroutines of a group that then wait again, and adds some that end;
//	          prints "turned"
//	bare      makes a goroutine block in a system call that the scheduler does not know of; prints
//	          a line of JSON. Afterwards it obeys "spin" alone
//	spin N    starts N goroutines that need all of a processor; prints "spinning"
//
// It ends when its input closes.
package main

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

// facts are what the program knows of a goroutine's wait; 0 and "" where it has no such thing.
type facts struct {
	ID      int64   `json:"id"`
	FD      uintptr `json:"fd"`
	Local   string  `json:"local"`
	Peer    string  `json:"peer"`
	Path    string  `json:"path"`
	Address uintptr `json:"address"`
	Holder  int64   `json:"holder"`
	Thread  int     `json:"thread"`
}

var reports = map[string]*facts{}

// begin starts a goroutine, and returns when that runs, with the facts of that name.
func begin(name string, wait func()) *facts {
	found := &facts{}
	go func() {
		atomic.StoreInt64(&found.ID, harness.GoroutineID())
		wait()
	}()
	for atomic.LoadInt64(&found.ID) == 0 {
		time.Sleep(50 * time.Microsecond)
	}
	reports[name] = found
	return found
}

// await returns when the goroutine is in this state. Go 1.19 has one word for all waits for locks.
func await(id int64, state string) { harness.AwaitState(id, state, "semacquire") }

func main() {
	waitForFiles()
	waitForLocks()
	waitForTime()
	waitInCalls()
	harness.Say(json.Marshal(reports))
	harness.Ready()
	for harness.Next() {
		command := harness.Words()
		switch command[0] {
		case "deadlock":
			reports = map[string]*facts{}
			deadlock()
			harness.Say(json.Marshal(reports))
		case "leak":
			leak(harness.Number(command[1]))
			fmt.Println("leaked")
		case "mixed":
			mixed(harness.Number(command[1]))
			harness.Say(json.Marshal(reports))
		case "send":
			send(harness.Number(command[1]))
			fmt.Println("sent")
		case "receive":
			for i := 0; i < harness.Number(command[1]); i++ {
				<-letters
			}
			fmt.Println("received")
		case "stuck":
			stuck()
			fmt.Println("stuck")
		case "profile":
			profile()
			fmt.Println("profiled")
		case "turn":
			turn()
			fmt.Println("turned")
		case "bare":
			reports = map[string]*facts{}
			bare()
		case "spin":
			spin(harness.Number(command[1]))
			fmt.Println("spinning")
		default:
			panic("oncall: no such command")
		}
	}
}
