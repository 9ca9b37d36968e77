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
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"

	"ebpfprof.test/harness"
)

func main() {
	harness.Ready()
	var held []*actor
	for harness.Next() {
		switch harness.Command() {
		case "go":
			for i, a := range actors() {
				a.begin(i + 1)
				harness.Say(json.Marshal(a.perform()))
			}
		case "hold":
			held = actors()
			for _, a := range held {
				a.begin(1)
			}
		case "let go":
			for _, a := range held {
				harness.Say(json.Marshal(a.perform()))
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
			harness.Check(err)
		case "next":
			unreadValues <- 1
			harness.AwaitBlocked(unreadID)
		case "spin":
			go spinUnread()
		default:
			panic("labels: no such command")
		}
		fmt.Println("done")
	}
}
