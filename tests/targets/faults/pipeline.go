package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

// A telemetryPipe decodes, packs and stores what sensors send. Each stage has time to spare.
type telemetryPipe struct {
	received chan []byte
	decoded  chan telemetryReading
	packed   chan []byte
	stored   atomic.Int64
}

type telemetryReading struct {
	sensor uint32
	values []byte
}

const telemetryPace = 2 * time.Millisecond

//go:noinline
func (p *telemetryPipe) receive() {
	for range time.Tick(telemetryPace) {
		p.received <- bytes.Repeat([]byte("temperature 21.5 "), 100)
	}
}

//go:noinline
func (p *telemetryPipe) decode() {
	for message := range p.received {
		fields := bytes.Fields(message)
		p.decoded <- telemetryReading{crc32.ChecksumIEEE(message), bytes.Join(fields, []byte(","))}
	}
}

//go:noinline
func (p *telemetryPipe) pack() {
	writer := gzip.NewWriter(nil)
	for reading := range p.decoded {
		var packed bytes.Buffer
		writer.Reset(&packed)
		fmt.Fprint(writer, reading.sensor)
		writer.Write(reading.values)
		harness.Check(writer.Close())
		p.packed <- packed.Bytes()
	}
}

//go:noinline
func (p *telemetryPipe) store() {
	for packed := range p.packed {
		p.stored.Add(int64(len(packed)))
	}
}

func init() { register("pipeline", runTelemetry) }

func runTelemetry() {
	pipe := &telemetryPipe{
		received: make(chan []byte, 16),
		decoded:  make(chan telemetryReading, 16),
		packed:   make(chan []byte, 16),
	}
	for i := 0; i < 2; i++ {
		go pipe.decode()
		go pipe.pack()
	}
	go pipe.store()
	go pipe.receive()
	awaitCount(&pipe.stored, 10_000)
}
