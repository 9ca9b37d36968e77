package main

import (
	"context"
	"runtime/pprof"
	"sync/atomic"
	"unsafe"
)

// Two values of labels in pages of the program's file that nobody reads, and none nearby.
var unread = [2 << 20]byte{
	1 << 19: 'w', 'a', 'i', 't', 's',
	3 << 19: 's', 'p', 'i', 'n', 's',
}

const unreadBytes = 5

var (
	unreadID     int64
	unreadValues = make(chan int)
	mayRest      int64
)

// unreadLabels makes a string of what is at that place of unread, without looking at it.
func unreadLabels(at int) pprof.LabelSet {
	value := struct {
		data  unsafe.Pointer
		bytes int
	}{unsafe.Pointer(&unread[at]), unreadBytes}
	return pprof.Labels("unread", *(*string)(unsafe.Pointer(&value)))
}

// waitUnread returns when the goroutine waits.
func waitUnread() {
	go pprof.Do(context.Background(), unreadLabels(1<<19), func(context.Context) {
		atomic.StoreInt64(&unreadID, goroutineID())
		for {
			receive(unreadValues)
		}
	})
	poll(&unreadID, 1)
	awaitParked(unreadID)
}

func spinUnread() {
	pprof.Do(context.Background(), unreadLabels(3<<19), func(context.Context) {
		for atomic.LoadInt64(&mayRest) == 0 {
		}
	})
}
