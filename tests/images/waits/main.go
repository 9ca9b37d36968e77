// Waits is the program of the images of memory: it parks goroutines in every kind of wait, says what
// it is then, and stands still.
//
// Protocol: it writes facts, one a line, a line "traceback", and Go's own traceback of all
// goroutines; then a line "ready". All goroutines but the main one stand still from before the
// traceback on. It ends when its input closes. It imports as little as it can: what the linker leaves
// out need not be saved.
package main

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
)

var (
	facts   []byte // what it says, without an allocation once all waits
	records = make([]runtime.MemProfileRecord, 4096)
	threads = make([]runtime.StackRecord, 256)
	stats   runtime.MemStats
	stacks  = make([]byte, 1<<20)
)

func main() {
	facts = make([]byte, 0, 1<<20)
	keepMemory()
	startWaits()
	awaitWaits()
	runtime.GC()
	runtime.GC()
	sayAllocations()
	sayThreads()
	runtime.ReadMemStats(&stats)
	size := runtime.Stack(stacks, true)
	sayMemory()
	say("goroutines", runtime.NumGoroutine())
	facts = append(facts, "traceback\n"...)
	facts = append(facts, stacks[:size]...)
	facts = append(facts, "ready\n"...)
	for rest := facts; len(rest) > 0; {
		written, err := syscall.Write(1, rest)
		if err != nil {
			os.Exit(1)
		}
		rest = rest[written:]
	}
	var line [1]byte
	os.Stdin.Read(line[:])
}

// say appends a fact: words, then numbers.
func say(words string, numbers ...int) {
	facts = append(facts, words...)
	for _, number := range numbers {
		facts = append(facts, ' ')
		facts = strconv.AppendInt(facts, int64(number), 10)
	}
	facts = append(facts, '\n')
}

// sayMemory says what runtime.MemStats has.
func sayMemory() {
	for _, each := range [...]struct {
		name  string
		value uint64
	}{
		{"HeapAlloc", stats.HeapAlloc}, {"HeapSys", stats.HeapSys}, {"HeapIdle", stats.HeapIdle},
		{"HeapInuse", stats.HeapInuse}, {"HeapReleased", stats.HeapReleased},
		{"HeapObjects", stats.HeapObjects}, {"TotalAlloc", stats.TotalAlloc},
		{"Mallocs", stats.Mallocs}, {"Frees", stats.Frees}, {"Sys", stats.Sys},
		{"StackInuse", stats.StackInuse}, {"StackSys", stats.StackSys},
		{"MSpanInuse", stats.MSpanInuse}, {"MSpanSys", stats.MSpanSys},
		{"MCacheInuse", stats.MCacheInuse}, {"MCacheSys", stats.MCacheSys},
		{"BuckHashSys", stats.BuckHashSys}, {"GCSys", stats.GCSys}, {"OtherSys", stats.OtherSys},
		{"NextGC", stats.NextGC}, {"LastGC", stats.LastGC}, {"PauseTotalNs", stats.PauseTotalNs},
		{"NumGC", uint64(stats.NumGC)}, {"NumForcedGC", uint64(stats.NumForcedGC)},
	} {
		say("memory "+each.name, int(each.value))
	}
}

// sayAllocations says the memory profile: numbers, then return addresses.
func sayAllocations() {
	count, _ := runtime.MemProfile(records, true)
	for at := range records[:count] {
		each := &records[at]
		say("allocations", int(each.AllocObjects), int(each.AllocBytes), int(each.FreeObjects),
			int(each.FreeBytes))
	}
}

// sayThreads says how many threads the runtime made.
func sayThreads() {
	count, _ := runtime.ThreadCreateProfile(threads)
	say("threads", count)
}
