package main

import (
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"ebpfprof.test/harness"
)

// some returns a random length, so that nothing here has a rhythm: of this mean.
func some(mean time.Duration) time.Duration {
	return mean/2 + time.Duration(rand.Int63n(int64(mean)))
}

// locks has contention for a lock, for one of readers and writers, and for a condition.
func locks() {
	var mu, news sync.Mutex
	var rw sync.RWMutex
	changed := sync.NewCond(&news)
	for i := 0; i < 4; i++ {
		go func() { lock(&mu) }()
		go func() { read(&rw) }()
	}
	go func() { write(&rw) }()
	go func() { await(changed) }()
	go func() { signal(changed) }()
}

func lock(mu *sync.Mutex) {
	for {
		mu.Lock()
		harness.Spin(some(20 * time.Microsecond))
		time.Sleep(some(400 * time.Microsecond))
		mu.Unlock()
	}
}

func read(mu *sync.RWMutex) {
	for {
		mu.RLock()
		time.Sleep(some(300 * time.Microsecond))
		mu.RUnlock()
	}
}

func write(mu *sync.RWMutex) {
	for {
		mu.Lock()
		time.Sleep(some(time.Millisecond))
		mu.Unlock()
		time.Sleep(some(2 * time.Millisecond))
	}
}

func await(news *sync.Cond) {
	for {
		news.L.Lock()
		news.Wait()
		news.L.Unlock()
	}
}

func signal(news *sync.Cond) {
	for {
		time.Sleep(some(time.Millisecond))
		news.Signal()
	}
}

// channels has goroutines that send, receive and select.
func channels() {
	numbers, jobs, end := make(chan int), make(chan int), make(chan bool)
	go func() { send(numbers) }()
	go func() { receive(numbers) }()
	go func() { send(jobs) }()
	for i := 0; i < 3; i++ {
		go func() { choose(jobs, end) }()
	}
}

func send(to chan<- int) {
	for {
		harness.Spin(some(50 * time.Microsecond))
		to <- 1
	}
}

func receive(from <-chan int) {
	for range from {
		harness.Spin(some(50 * time.Microsecond))
		time.Sleep(some(200 * time.Microsecond))
	}
}

func choose(jobs <-chan int, end <-chan bool) {
	for {
		select {
		case <-jobs:
			harness.Spin(some(50 * time.Microsecond))
		case <-end:
			return
		}
	}
}

// sleeps has goroutines that mostly sleep.
func sleeps() {
	for i := 0; i < 20; i++ {
		go doze()
	}
	go rest()
}

func doze() {
	for {
		time.Sleep(some(5 * time.Millisecond))
		harness.Spin(some(50 * time.Microsecond))
	}
}

func rest() {
	for {
		time.Sleep(time.Hour)
	}
}

// network has clients and servers that answer them, on this machine.
func network() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(err)
	go func() {
		for {
			connection, err := listener.Accept()
			harness.Check(err)
			go func() { answer(connection) }()
		}
	}()
	for i := 0; i < 4; i++ {
		connection, err := net.Dial("tcp", listener.Addr().String())
		harness.Check(err)
		go func() { ask(connection) }()
	}
}

func ask(connection net.Conn) {
	question := make([]byte, 1)
	for {
		_, err := connection.Write(question)
		harness.Check(err)
		_, err = io.ReadFull(connection, question)
		harness.Check(err)
		time.Sleep(some(time.Millisecond))
	}
}

func answer(connection net.Conn) {
	question := make([]byte, 1)
	for {
		_, err := io.ReadFull(connection, question)
		harness.Check(err)
		harness.Spin(some(100 * time.Microsecond))
		time.Sleep(some(time.Millisecond))
		_, err = connection.Write(question)
		harness.Check(err)
	}
}

// syscalls has system calls that are long, and some that are short.
func syscalls() {
	for i := 0; i < 3; i++ {
		go nap()
	}
	go pause()
	file, err := os.Open("/proc/self/exe")
	harness.Check(err)
	go func() { load(file) }()
}

func nap() {
	for {
		length := syscall.NsecToTimespec(int64(some(3 * time.Millisecond)))
		// It ends early when the runtime sends a signal.
		_ = syscall.Nanosleep(&length, nil)
		harness.Spin(some(100 * time.Microsecond))
	}
}

func pause() {
	for {
		var none [2]int
		harness.Check(syscall.Pipe(none[:]))
		var set syscall.FdSet
		set.Bits[none[0]/64] |= 1 << (none[0] % 64)
		length := syscall.NsecToTimeval(int64(some(10 * time.Millisecond)))
		_, _ = syscall.Select(none[0]+1, &set, nil, nil, &length)
		harness.Check(syscall.Close(none[0]))
		harness.Check(syscall.Close(none[1]))
	}
}

func load(file *os.File) {
	buffer := make([]byte, 1<<16)
	for {
		_, err := file.ReadAt(buffer, 0)
		harness.Check(err)
		time.Sleep(some(300 * time.Microsecond))
	}
}

// processors has more goroutines that compute than there are processors, and one that yields.
func processors() {
	for i := 0; i < 4; i++ {
		go compute()
	}
	go pass()
}

func compute() {
	for {
		harness.Spin(some(3 * time.Millisecond))
	}
}

func pass() {
	for {
		harness.Spin(some(time.Millisecond))
		time.Sleep(some(2 * time.Millisecond))
	}
}

// listens has a thread that reads from a pipe in a system call, without the network poller. It
// prints "pipe READS WRITES", the descriptors, and "got" for each byte.
func listens() {
	var ends [2]int
	harness.Check(syscall.Pipe(ends[:]))
	go func() { listen(ends[0]) }()
	fmt.Println("pipe", ends[0], ends[1])
}

func listen(pipe int) {
	one := make([]byte, 1)
	for {
		_, err := syscall.Read(pipe, one)
		harness.Check(err)
		fmt.Println("got")
	}
}

// naps has goroutines in system calls that timers end, and others that keep all processors busy.
func naps() {
	for i := 0; i < 2; i++ {
		go nap()
		go compute()
	}
}
