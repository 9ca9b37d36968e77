package main

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"ebpfprof.test/harness"
)

type gate struct {
	open bool
	rw   sync.RWMutex
}

//go:noinline
func (g *gate) write(t *turn) {
	t.arrive()
	g.rw.Lock()
	t.keep()
	g.rw.Unlock()
}

//go:noinline
func (g *gate) read(t *turn) {
	t.arrive()
	g.rw.RLock()
	t.keep()
	g.rw.RUnlock()
}

// mixed makes two writers and a reader wait for a writer. When that releases the lock, the reader
// has it first, for a long time. The release wakes the first writer, too, which waits for the
// reader. The probes see it alone hold the lock: from when the reader released it.
func mixed() outcome {
	const short, long = 3 * time.Millisecond, 30 * time.Millisecond
	g := &gate{}
	sum := outcome{Kind: "sync.RWMutex", Address: uintptr(unsafe.Pointer(&g.rw))}
	for i := 0; i < rounds; i++ {
		holder, writer, last, reader := newTurn(short), newTurn(short), newTurn(short), newTurn(long)
		for _, t := range []*turn{writer, last, reader} {
			close(t.mayGo)
		}
		begin(holder, g.write)
		<-holder.has
		begin(writer, g.write)
		writer.awaitParked()
		begin(last, g.write)
		last.awaitParked()
		begin(reader, g.read)
		reader.awaitParked()
		close(holder.mayGo)
		for _, t := range []*turn{holder, reader, writer, last} {
			<-t.goneAgain
		}
		sum.Holds++
		sum.Held += writer.released.Sub(reader.released)
	}
	return sum
}

// begin starts a goroutine that calls act.
func begin(t *turn, act func(*turn)) {
	go func() {
		act(t)
		close(t.goneAgain)
	}()
}

func (t *turn) awaitParked() { awaitParked(&t.id) }

// awaitParked polls until a goroutine has arrived, so that it has an id, and is parked.
func awaitParked(id *int64) {
	harness.Poll(func() bool { return atomic.LoadInt64(id) != 0 })
	harness.AwaitBlocked(*id)
}
