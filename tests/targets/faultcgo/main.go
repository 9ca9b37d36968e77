// Faultcgo is services that call C, as `faults` is services that don't: `faultcgo stuck` has
// threads that wait in C, `faultcgo short` has calls of a few microseconds.
package main

/*
#include <stdint.h>
#include <time.h>

// A client of a directory of places, which waits for its server.
static int locate_place(int number) {
	struct timespec answer_time = {0, 40 * 1000 * 1000};
	nanosleep(&answer_time, 0);
	return number % 90;
}

static uint32_t sum_of_frame(const uint8_t *frame, int size) {
	uint32_t sum = 1, sums = 0;
	for (int i = 0; i < size; i++) {
		sum = (sum + frame[i]) % 65521;
		sums = (sums + sum) % 65521;
	}
	return sums << 16 | sum;
}
*/
import "C"

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	"ebpfprof.test/harness"
	"ebpfprof.test/harness/traffic"
)

type placeFinder struct{ found atomic.Int64 }

//go:noinline
func (p *placeFinder) locate(number int) int { return int(C.locate_place(C.int(number))) }

func (p *placeFinder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, p.locate(int(p.found.Load())))
	p.found.Add(1)
}

type videoRelay struct {
	frame   []byte
	relayed atomic.Int64
}

//go:noinline
func (v *videoRelay) sum() uint32 {
	return uint32(C.sum_of_frame((*C.uint8_t)(&v.frame[0]), C.int(len(v.frame))))
}

func (v *videoRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, v.sum())
	w.Write(v.frame)
	v.relayed.Add(1)
}

func main() {
	switch os.Args[1] {
	case "stuck":
		finder := &placeFinder{}
		traffic.Send(traffic.Serve(finder), traffic.Load{Clients: 40})
		harness.Poll(func() bool { return finder.found.Load() > 20 })
	case "short":
		relay := &videoRelay{frame: bytes.Repeat([]byte("frame"), 1000)}
		traffic.Send(traffic.Serve(relay), traffic.Load{PerSecond: 200})
		harness.Poll(func() bool { return relay.relayed.Load() > 20 })
	}
	harness.Ready()
	harness.AwaitEnd()
}
