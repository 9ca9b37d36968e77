package main

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

// runStress does n operations of each contended kind on two processors, all kinds in turn. How
// often they block is chance; only Go's own profile of the run has the numbers.
func runStress(n int) {
	runtime.GOMAXPROCS(2)
	stressMutex(n)
	stressRWMutex(n)
	stressSemaphore(n)
	stressChannels(n)
	stressSelect(n)
	stressCond(n)
	stressWaitGroup(n)
	stressFile(n / 60)
	stressPipe(n)
	stressTimers(n / 20)
}

// yieldTo lets the other goroutines run every eighth time, so that they wait for the lock that
// this one holds.
func yieldTo(i int) {
	if i%8 == 0 {
		runtime.Gosched()
	}
}

// stressMutex: the unlocking goroutine works on, so that others overtake the woken goroutine.
func stressMutex(n int) {
	var mu sync.Mutex
	total := 0
	harness.Together(8, func() {
		for i := 0; i < n/8; i++ {
			mu.Lock()
			total++
			harness.Spin(time.Duration(i%4) * time.Microsecond)
			yieldTo(i)
			mu.Unlock()
			harness.Spin(time.Duration(i%7) * time.Microsecond)
		}
	})
	harness.Assert(total == n/8*8)
}

func stressRWMutex(n int) {
	var mu sync.RWMutex
	var number atomic.Int64
	total, copyOfTotal := 0, 0
	harness.Together(6, func() {
		writes := number.Add(1) <= 2
		for i := 0; i < n/6; i++ {
			if writes {
				mu.Lock()
				total++
				harness.Spin(time.Duration(i%3) * time.Microsecond)
				yieldTo(i)
				copyOfTotal++
				mu.Unlock()
				harness.Spin(2 * time.Microsecond)
			} else {
				mu.RLock()
				harness.Assert(total == copyOfTotal)
				yieldTo(i)
				mu.RUnlock()
			}
		}
	})
	harness.Assert(total == n/6*2)
}

// stressSemaphore: without hand-over one call often parks several times: the goroutine that
// released the semaphore takes it again before the woken one runs.
func stressSemaphore(n int) {
	semaphore := uint32(1)
	total := 0
	harness.Together(6, func() {
		for i := 0; i < n/6; i++ {
			semacquire(&semaphore)
			total++
			harness.Spin(time.Duration(i%3) * time.Microsecond)
			yieldTo(i)
			semrelease(&semaphore, false, 0)
			yieldTo(i + 3)
		}
	})
	harness.Assert(total == n/6*6)
}

func stressChannels(n int) {
	c := make(chan int)
	var number, sent, received atomic.Int64
	harness.Together(4, func() {
		sends := number.Add(1)%2 == 0
		for i := 0; i < n/4; i++ {
			if sends {
				c <- i
				sent.Add(int64(i))
			} else {
				received.Add(int64(<-c))
			}
		}
	})
	harness.Assert(sent.Load() == received.Load())
}

func stressSelect(n int) {
	a, b := make(chan int), make(chan int)
	var number, sent, received atomic.Int64
	harness.Together(4, func() {
		sends := number.Add(1)%2 == 0
		for i := 0; i < n/4; i++ {
			if sends {
				select {
				case a <- i:
				case b <- i:
				}
				sent.Add(int64(i))
			} else {
				select {
				case v := <-a:
					received.Add(int64(v))
				case v := <-b:
					received.Add(int64(v))
				}
			}
		}
	})
	harness.Assert(sent.Load() == received.Load())
}

// stressCond is a bounded queue.
func stressCond(n int) {
	var mu sync.Mutex
	notEmpty, notFull := sync.NewCond(&mu), sync.NewCond(&mu)
	var queue []int
	var number, taken, put atomic.Int64
	harness.Together(4, func() {
		puts := number.Add(1)%2 == 0
		for i := 0; i < n/4; i++ {
			mu.Lock()
			if puts {
				for len(queue) == 3 {
					notFull.Wait()
				}
				queue = append(queue, i)
				put.Add(int64(i))
				notEmpty.Signal()
			} else {
				for len(queue) == 0 {
					notEmpty.Wait()
				}
				taken.Add(int64(queue[0]))
				queue = queue[1:]
				notFull.Broadcast()
			}
			mu.Unlock()
		}
	})
	harness.Assert(taken.Load() == put.Load())
}

func stressWaitGroup(n int) {
	harness.Together(2, func() {
		for i := 0; i < n/16; i++ {
			var group sync.WaitGroup
			var total atomic.Int64
			for j := 0; j < 4; j++ {
				group.Add(1)
				go func() {
					defer group.Done()
					yieldTo(0)
					total.Add(1)
				}()
			}
			group.Wait()
			harness.Assert(total.Load() == 4)
		}
	})
}

// stressFile: four readers of one pipe queue up for its read lock; the one that has it waits for
// the two writers, which are slow.
func stressFile(n int) {
	reader, writer, err := os.Pipe()
	harness.Check(err)
	var number atomic.Int64
	harness.Together(6, func() {
		writes := number.Add(1)%3 == 0
		for i := 0; i < n; i++ {
			var err error
			if writes {
				_, err = writer.Write(make([]byte, 2))
				time.Sleep(50 * time.Microsecond)
			} else {
				_, err = reader.Read(make([]byte, 1))
			}
			harness.Check(err)
		}
	})
	harness.Check(reader.Close())
	harness.Check(writer.Close())
}

func stressPipe(n int) {
	reader, writer := io.Pipe()
	var number atomic.Int64
	harness.Together(2, func() {
		writes := number.Add(1) == 1
		buffer := make([]byte, 1)
		for i := 0; i < n/2; i++ {
			var err error
			if writes {
				_, err = writer.Write(buffer)
			} else {
				_, err = reader.Read(buffer)
			}
			harness.Check(err)
		}
	})
}

func stressTimers(n int) {
	harness.Together(4, func() {
		for i := 0; i < n/4; i++ {
			<-time.After(time.Duration(i%100) * time.Microsecond)
		}
	})
}
