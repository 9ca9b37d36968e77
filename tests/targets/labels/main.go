// Labels makes goroutines with many kinds of labels wait and release a lock, in known numbers.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	go     all actors act (actors.go), one after the other; prints a line of JSON for each, and
//	       "done"
//	hold   all actors wait in receive; prints "done"
//	let go the actors of hold act; prints the same as go
//	crowd  goroutines with a label contend for the runtime's lock of a channel (crowd.go); prints
//	       "done"
//	unread a goroutine waits in receive with a label that no code has read (unread.go); prints
//	       "done" once it waits
//	unreadable  the same with a label that can't be read, in a file, the first argument, or in other
//	       memory
//	map    maps memory and unmaps it, which takes the process's lock of its memory; prints "done"
//	next   that goroutine waits once more; prints "done" as soon as it does
//	serve  a goroutine waits for 100 requests, each with labels of its own (requests.go); prints
//	       "done"
//	spin   another goroutine with such a label takes processor time; prints "done"
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
