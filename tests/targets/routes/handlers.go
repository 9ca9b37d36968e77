package main

import (
	"net/http"

	"ebpfprof.test/harness"
)

//go:noinline
func route00(http.ResponseWriter, *http.Request) { wait(0) }

//go:noinline
func route01(http.ResponseWriter, *http.Request) { wait(1) }

//go:noinline
func route02(http.ResponseWriter, *http.Request) { wait(2) }

//go:noinline
func route03(http.ResponseWriter, *http.Request) { wait(3) }

//go:noinline
func route04(http.ResponseWriter, *http.Request) { wait(4) }

//go:noinline
func route05(http.ResponseWriter, *http.Request) { wait(5) }

//go:noinline
func route06(http.ResponseWriter, *http.Request) { wait(6) }

//go:noinline
func route07(http.ResponseWriter, *http.Request) { wait(7) }

//go:noinline
func route08(http.ResponseWriter, *http.Request) { wait(8) }

//go:noinline
func route09(http.ResponseWriter, *http.Request) { wait(9) }

//go:noinline
func route10(http.ResponseWriter, *http.Request) { wait(10) }

//go:noinline
func route11(http.ResponseWriter, *http.Request) { wait(11) }

//go:noinline
func route12(http.ResponseWriter, *http.Request) { wait(12) }

//go:noinline
func route13(http.ResponseWriter, *http.Request) { wait(13) }

//go:noinline
func route14(http.ResponseWriter, *http.Request) { wait(14) }

//go:noinline
func route15(http.ResponseWriter, *http.Request) {
	done := make(chan bool, 1)
	go func() {
		wait(15)
		done <- true
	}()
	wait(15)
	harness.Poll(func() bool { return len(done) == 1 })
}

//go:noinline
func route16(http.ResponseWriter, *http.Request) {
	done := make(chan bool, 1)
	go func() {
		wait(16)
		done <- true
	}()
	wait(16)
	harness.Poll(func() bool { return len(done) == 1 })
}

//go:noinline
func route17(http.ResponseWriter, *http.Request) {
	done := make(chan bool, 1)
	go func() {
		wait(17)
		done <- true
	}()
	wait(17)
	harness.Poll(func() bool { return len(done) == 1 })
}

//go:noinline
func route18(http.ResponseWriter, *http.Request) {
	done := make(chan bool, 1)
	go waitAndSend(18, done)
	wait(18)
	harness.Poll(func() bool { return len(done) == 1 })
}

//go:noinline
func route19(http.ResponseWriter, *http.Request) {
	done := make(chan bool, 1)
	go waitAndSend(19, done)
	wait(19)
	harness.Poll(func() bool { return len(done) == 1 })
}

// The paths are /00 to /19.
var handlers = []http.HandlerFunc{
	route00, route01, route02, route03, route04,
	route05, route06, route07, route08, route09,
	route10, route11, route12, route13, route14,
	route15, route16, route17, route18, route19,
}
