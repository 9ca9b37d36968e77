package main

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

// A backupStore packs blocks and names them by their hashes. It has a goroutine for each CPU at
// most, but its threads wait for CPUs that other processes use.
type backupStore struct {
	block   []byte
	packers sync.Pool
}

//go:noinline
func (b *backupStore) pack(block []byte) []byte {
	var packed bytes.Buffer
	writer := b.packers.Get().(*flate.Writer)
	defer b.packers.Put(writer)
	writer.Reset(&packed)
	writer.Write(block)
	harness.Check(writer.Close())
	return packed.Bytes()
}

//go:noinline
func (b *backupStore) sum(block []byte) [sha256.Size]byte { return sha256.Sum256(block) }

func (b *backupStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %x", r.URL.Path, b.sum(b.pack(b.block)))
}

func newPacker() interface{} {
	writer, err := flate.NewWriter(nil, flate.DefaultCompression)
	harness.Check(err)
	return writer
}

func init() { register("neighbours", serveBackups) }

func serveBackups() {
	store := &backupStore{packers: sync.Pool{New: newPacker}}
	for i := 0; i < 48_000; i++ {
		store.block = append(store.block, fmt.Sprint("file ", i*i, " ")...)
	}
	underLoad(store, traffic.Load{Clients: 2})
}
