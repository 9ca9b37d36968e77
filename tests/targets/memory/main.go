// Memory keeps objects of known types and sizes, and tells Go's own statistics.
//
// Commands, a line each; each is answered by one line:
//
//	keep N   keeps N records of 1,000 bytes with pointers, N slices of 96 bytes, N/10 large ones;
//	         "done"
//	drop     drops half of them; "done"
//	gc       collects garbage; "done"
//	churn    allocates without end, in the background; "done"
//	stats    runtime.MemStats as JSON. From then on it allocates nothing until the next command.
package main

import (
	"fmt"
	"runtime"
	"strconv"
	"syscall"

	"ebpfprof.test/harness"
)

type record struct {
	next  *record
	names [120]string
}

type giant struct {
	first *giant
	data  [100 << 10]byte
}

var (
	records []*record
	plain   [][]byte
	giants  []*giant
	stats   runtime.MemStats
	line    = make([]byte, 0, 1<<16)
)

func number(name string, value uint64) {
	line = append(line, '"')
	line = append(line, name...)
	line = append(line, `": `...)
	line = strconv.AppendUint(line, value, 10)
	line = append(line, ',', ' ')
}

func tell() {
	runtime.ReadMemStats(&stats)
	line = append(line[:0], "{"...)
	number("total_allocated", stats.TotalAlloc)
	number("allocated", stats.HeapAlloc)
	number("mallocs", stats.Mallocs)
	number("frees", stats.Frees)
	number("heap_mapped", stats.HeapSys)
	number("heap_in_use", stats.HeapInuse)
	number("idle", stats.HeapIdle)
	number("released", stats.HeapReleased)
	number("objects", stats.HeapObjects)
	number("stacks_in_use", stats.StackInuse)
	number("stacks_mapped", stats.StackSys)
	number("spans_in_use", stats.MSpanInuse)
	number("spans_mapped", stats.MSpanSys)
	number("caches_in_use", stats.MCacheInuse)
	number("caches_mapped", stats.MCacheSys)
	number("profile_buckets", stats.BuckHashSys)
	number("collector_mapped", stats.GCSys)
	number("other_mapped", stats.OtherSys)
	number("mapped", stats.Sys)
	number("goal", stats.NextGC)
	number("last_unix_ns", stats.LastGC)
	number("paused_ns", stats.PauseTotalNs)
	number("last_pause_ns", stats.PauseNs[(stats.NumGC+255)%256])
	number("cycles", uint64(stats.NumGC))
	number("forced", uint64(stats.NumForcedGC))
	line = append(line, `"by_size": [`...)
	for i, each := range stats.BySize {
		if i > 0 {
			line = append(line, ", "...)
		}
		line = append(line, '[')
		line = strconv.AppendUint(line, uint64(each.Size), 10)
		line = append(line, ", "...)
		line = strconv.AppendUint(line, each.Mallocs, 10)
		line = append(line, ", "...)
		line = strconv.AppendUint(line, each.Frees, 10)
		line = append(line, ']')
	}
	line = append(line, "]}\n"...)
	_, err := syscall.Write(1, line)
	harness.Check(err)
}

func churn() {
	var kept [64][]byte
	for i := 0; ; i++ {
		kept[i%64] = make([]byte, 16+i%3000)
	}
}

func main() {
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "keep":
			for i := 0; i < harness.Number(words[1]); i++ {
				records = append(records, &record{})
				plain = append(plain, make([]byte, 96))
				if i%10 == 0 {
					giants = append(giants, &giant{})
				}
			}
		case "drop":
			records = append([]*record(nil), records[:len(records)/2]...)
			plain = append([][]byte(nil), plain[:len(plain)/2]...)
			giants = append([]*giant(nil), giants[:len(giants)/2]...)
		case "gc":
			runtime.GC()
		case "churn":
			go churn()
		case "stats":
			tell()
			continue
		}
		fmt.Println("done")
	}
}
