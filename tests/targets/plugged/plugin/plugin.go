// The plugin of plugged.
package main

import (
	"sync"
	"time"
)

// Work takes turns with others.
func Work(mu *sync.Mutex) {
	for {
		mu.Lock()
		time.Sleep(3 * time.Millisecond)
		mu.Unlock()
	}
}
