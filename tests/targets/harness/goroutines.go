package harness

import (
	"bytes"
	"fmt"
	"runtime"
	"time"
)

// BlockedStates are the states in which a goroutine waits for what a block profile measures, as
// tracebacks of Go 1.19 to 1.27 name them.
var BlockedStates = []string{
	"chan receive", "chan send", "select", "semacquire", "sync.Mutex.Lock",
	"sync.RWMutex.RLock", "sync.RWMutex.Lock", "sync.Cond.Wait", "sync.WaitGroup.Wait",
}

// GoroutineID returns the id of the goroutine that calls it.
func GoroutineID() int64 {
	buffer := make([]byte, 64)
	words := bytes.Fields(buffer[:runtime.Stack(buffer, false)])
	return int64(Number(string(words[1])))
}

var traceback []byte

// Traceback returns the traceback of all goroutines, valid until the next call; only main and
// the functions below call it.
func Traceback() []byte {
	size := runtime.Stack(traceback, true)
	for size == len(traceback) {
		traceback = make([]byte, 1<<20+2*size)
		size = runtime.Stack(traceback, true)
	}
	return traceback[:size]
}

// StateOf returns the state of another goroutine in a traceback, or "" if that has ended.
func StateOf(id int64) string {
	text := Traceback()
	at := bytes.Index(text, []byte(fmt.Sprintf("\ngoroutine %d ", id)))
	if at < 0 {
		return ""
	}
	text = text[at:]
	text = text[bytes.IndexByte(text, '[')+1:]
	text = text[:bytes.IndexAny(text, ",]")]
	return string(bytes.TrimSuffix(text, []byte(" (scan)")))
}

// AwaitState polls until a goroutine is in one of the states.
func AwaitState(id int64, states ...string) {
	Poll(func() bool { return isOneOf(StateOf(id), states) })
}

// AwaitBlocked polls until a goroutine is in one of BlockedStates.
func AwaitBlocked(id int64) { AwaitState(id, BlockedStates...) }

func isOneOf(state string, states []string) bool {
	for _, each := range states {
		if state == each {
			return true
		}
	}
	return false
}

// Poll waits without blocking in a way that a block profile shows.
func Poll(done func() bool) {
	for i := 0; !done(); i++ {
		if i < 50 {
			runtime.Gosched()
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
}
