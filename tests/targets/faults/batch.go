package main

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"runtime"
	"sort"
	"strings"
	"sync/atomic"

	"ebpfprof.test/harness"
)

// A nightlyBatch packs reports on all processors: that is what it is for.
type nightlyBatch struct {
	begun, packed atomic.Int64
}

//go:noinline
func (b *nightlyBatch) write(number int) []string {
	lines := make([]string, 0, 2000)
	for i := 0; i < cap(lines); i++ {
		lines = append(lines, fmt.Sprintf("%08x: line of report %d", i*number*2654435761, number))
	}
	return lines
}

//go:noinline
func (b *nightlyBatch) order(lines []string) string {
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

//go:noinline
func (b *nightlyBatch) pack(writer *flate.Writer, report string) []byte {
	var packed bytes.Buffer
	writer.Reset(&packed)
	writer.Write([]byte(report))
	harness.Check(writer.Close())
	return packed.Bytes()
}

//go:noinline
func (b *nightlyBatch) seal(packed []byte) string {
	sum := sha256.Sum256(packed)
	for i := 0; i < 4000; i++ {
		sum = sha256.Sum256(sum[:])
	}
	return fmt.Sprintf("%x %x", sum, crc32.ChecksumIEEE(packed))
}

//go:noinline
func (b *nightlyBatch) work() {
	writer, err := flate.NewWriter(nil, flate.BestSpeed)
	harness.Check(err)
	for {
		number := int(b.begun.Add(1))
		b.seal(b.pack(writer, b.order(b.write(number))))
		b.packed.Add(1)
	}
}

func init() { register("batch", packReports) }

func packReports() {
	job := &nightlyBatch{}
	for i := 0; i < runtime.GOMAXPROCS(0); i++ {
		go job.work()
	}
	awaitCount(&job.packed, 20)
}
