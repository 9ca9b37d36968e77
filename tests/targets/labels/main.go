// Labels makes goroutines with labels of many kinds wait and release a lock, known numbers of times.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	go     lets all actors act (actors.go), one after the other; prints a line of JSON for each, and
//	       "done"
//	hold   lets all actors wait in receive; prints "done"
//	let go lets those act that were held; prints the same as go
//	crowd  lets goroutines with a label contend for the runtime's lock of a channel (crowd.go);
//	       prints "done"
//	unread lets a goroutine wait in receive whose label nobody has looked at (unread.go); prints
//	       "done" once it waits
//	unreadable  the same with a label that nobody can read, in a file that is the first argument
//	       or in other memory
//	map    maps memory and gives it back, which takes the process's lock of its memory; prints "done"
//	next   lets it wait once more; prints "done" as soon as it does
//	serve  lets a goroutine wait for 100 requests, each with labels of its own (requests.go); prints
//	       "done"
//	spin   lets another goroutine with such a label take processor time; prints "done"
//
// It ends when its input closes.
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
	"syscall"
	"time"
)

func main() {
	fmt.Println("ready", os.Getpid())
	input := bufio.NewScanner(os.Stdin)
	var held []*actor
	for input.Scan() {
		switch input.Text() {
		case "go":
			for i, a := range actors() {
				a.begin(i + 1)
				report(a.perform())
			}
		case "hold":
			held = actors()
			for _, a := range held {
				a.begin(1)
			}
		case "let go":
			for _, a := range held {
				report(a.perform())
			}
		case "crowd":
			crowd()
		case "serve":
			serve(100)
		case "unread":
			waitUnread(&unread[1<<19])
		case "unreadable":
			waitUnread(unreadable(strings.Join(os.Args[1:], "")))
		case "map":
			page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ,
				syscall.MAP_PRIVATE|syscall.MAP_ANON)
			if err == nil {
				err = syscall.Munmap(page)
			}
			if err != nil {
				panic(err)
			}
		case "next":
			unreadValues <- 1
			awaitParked(unreadID)
		case "spin":
			go spinUnread()
		default:
			panic("labels: no such command")
		}
		fmt.Println("done")
	}
}

func report(done performance) {
	line, err := json.Marshal(done)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

var waitingStates = map[string]bool{
	"chan receive": true, "semacquire": true, "sync.Mutex.Lock": true,
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
