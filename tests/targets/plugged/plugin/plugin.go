// The plugin of plugged.
package main

import (
	"sync"
	"time"
)

type record struct {
	next *record
	pad  [99]int
}

var kept *record

func init() {
	for i := 0; i < 500; i++ {
		kept = &record{next: kept}
	}
}

// Work takes turns with others.
func Work(mu *sync.Mutex) {
	for {
		mu.Lock()
		time.Sleep(3 * time.Millisecond)
		mu.Unlock()
	}
}
