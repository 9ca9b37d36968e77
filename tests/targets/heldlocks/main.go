// Heldlocks makes goroutines wait for locks of known names for known times, and lets goroutines
// hang.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	contend         makes contention for each lock (contend.go); prints a line of JSON
//	mixed           makes writers wait for readers that were before them (mixed.go); prints a line
//	                of JSON
//	hang GROUP      lets goroutines hang in each way (hang.go), in locks and channels of a group
//	                of their own; prints a line of JSON when all of them are parked
//	overtake        lets two goroutines hang in a lock, one of which was woken (overtake.go);
//	                prints a line of JSON when both are parked
//	release GROUP   lets those of a group go; prints "released" when all of them have ended
//
// Times are those of its own clock. It ends when its input closes, whoever hangs.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	callC()
	all := scenes()
	groups := map[string]*group{}
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		command := strings.Fields(input.Text())
		switch command[0] {
		case "contend":
			say(contend(all))
		case "mixed":
			say(mixed())
		case "hang":
			g := newGroup()
			groups[command[1]] = g
			say(g.hang())
		case "overtake":
			say(overtake())
		case "release":
			groups[command[1]].release()
			fmt.Println("released")
		default:
			panic("heldlocks: no such command")
		}
	}
}

func say(what interface{}) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

var waitingStates = map[string]bool{
	"chan receive": true, "select": true, "semacquire": true, "sync.Mutex.Lock": true,
	"sync.RWMutex.RLock": true, "sync.RWMutex.Lock": true, "sync.WaitGroup.Wait": true,
}

// awaitParked polls until the goroutine is parked.
func awaitParked(id int64) {
	for !waitingStates[stateOf(id)] {
		time.Sleep(50 * time.Microsecond)
	}
}

var traceback = make([]byte, 1<<20)

// stateOf reads a goroutine's state from the traceback of all goroutines; only main calls it.
func stateOf(id int64) string {
	text := "\n" + string(traceback[:runtime.Stack(traceback, true)])
	_, text, found := strings.Cut(text, fmt.Sprintf("\ngoroutine %d ", id))
	if !found {
		return ""
	}
	_, text, _ = strings.Cut(text, "[")
	state, _, _ := strings.Cut(text, "]")
	state, _, _ = strings.Cut(state, ",")
	return strings.TrimSuffix(state, " (scan)")
}

func goroutineID() int64 {
	buffer := make([]byte, 64)
	words := bytes.Fields(buffer[:runtime.Stack(buffer, false)])
	id, err := strconv.ParseInt(string(words[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return id
}
