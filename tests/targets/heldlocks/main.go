// Heldlocks makes goroutines wait for locks of known names for known times, and makes goroutines
// hang.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	contend         makes contention for each lock (contend.go); prints a line of JSON
//	mixed           makes writers wait for readers that came before them (mixed.go); prints a line
//	                of JSON
//	hang GROUP      makes goroutines hang in each way (hang.go), in locks and channels of a group
//	                of their own; prints a line of JSON when all of them are parked
//	overtake        makes two goroutines hang in a lock, one of which was woken (overtake.go);
//	                prints a line of JSON when both are parked
//	release GROUP   ends the waits of a group; prints "released" when its goroutines have ended
//
// Times are those of its own clock. It ends when its input closes, even with hanging goroutines.
package main

import (
	"encoding/json"
	"fmt"

	"ebpfprof.test/harness"
)

func main() {
	callC()
	all := scenes()
	groups := map[string]*group{}
	harness.Ready()
	for harness.Next() {
		command := harness.Words()
		switch command[0] {
		case "contend":
			harness.Say(json.Marshal(contend(all)))
		case "mixed":
			harness.Say(json.Marshal(mixed()))
		case "hang":
			g := newGroup()
			groups[command[1]] = g
			harness.Say(json.Marshal(g.hang()))
		case "overtake":
			harness.Say(json.Marshal(overtake()))
		case "release":
			groups[command[1]].release()
			fmt.Println("released")
		default:
			panic("heldlocks: no such command")
		}
	}
}
