// Annotated reports its work by runtime/trace: tasks, regions and messages.
//
// Protocol: it prints "ready PID" and then obeys the lines that it reads:
//
//	trace FILE   Go's own tracer writes into FILE from now on; prints "begun"
//	end          ends that trace; prints "ended"
//	work         goroutines do annotated work from now on; prints "working"
//	misuse       goroutines annotate in ways that contradict each other; prints "working"
//	log N        logs N messages and prints how many ns that took
//
// It ends when its input closes.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/trace"
	"strconv"
	"strings"
	"sync"
	"time"

	"ebpfprof.test/harness"
)

const (
	kitchens = 3
	short    = 2 * time.Millisecond
	long     = 20 * time.Millisecond
)

// begun begins what only StartRegion does, in a program that has it; what it returns ends that.
var begun = func(context.Context) func() { return func() {} }

var counter struct {
	sync.Mutex
	orders int
}

func main() {
	harness.Ready()
	for harness.Next() {
		words := harness.Words()
		switch words[0] {
		case "trace":
			file, err := os.Create(words[1])
			harness.Check(err)
			harness.Check(trace.Start(file))
			fmt.Println("begun")
		case "end":
			trace.Stop()
			fmt.Println("ended")
		case "work":
			for i := 0; i < kitchens; i++ {
				go kitchen()
			}
			fmt.Println("working")
		case "misuse":
			go misuse()
			fmt.Println("working")
		case "log":
			fmt.Println(logs(harness.Number(words[1])).Nanoseconds())
		default:
			panic("annotated: no such command: " + words[0])
		}
	}
}

// kitchen serves orders, one after the other. A dish of each is made by another goroutine.
func kitchen() {
	for {
		ctx, order := trace.NewTask(context.Background(), "order")
		trace.Log(ctx, "number", next())
		trace.WithRegion(ctx, "take", func() { time.Sleep(short) })
		served := make(chan bool)
		go func() { cook(ctx, served) }()
		trace.WithRegion(ctx, "serve", func() {
			trace.WithRegion(ctx, "wait", func() { <-served })
		})
		order.End()
		trace.Log(context.Background(), "", "an order is over")
	}
}

func cook(ctx context.Context, served chan bool) {
	ctx, dish := trace.NewTask(ctx, "dish")
	defer begun(ctx)()
	trace.WithRegion(ctx, "cook", func() { time.Sleep(long) })
	texts(ctx)
	dish.End()
	served <- true
}

// texts logs messages of all lengths, and of any bytes.
func texts(ctx context.Context) {
	number := next()
	trace.Log(ctx, "dish "+number, "Crème brûlée\x1b[2J\xff "+number)
	trace.Log(ctx, strings.Repeat("k", 32), strings.Repeat("m", 33))
	trace.Log(ctx, "long", strings.Repeat("0123456789", 200))
	trace.Log(ctx, "", "")
}

func next() string {
	counter.Lock()
	defer counter.Unlock()
	counter.orders++
	return strconv.Itoa(counter.orders)
}

// misuse ends tasks twice, and its goroutines end within regions.
func misuse() {
	for {
		ctx, task := trace.NewTask(context.Background(), "twice")
		done := make(chan bool)
		go func() {
			defer close(done)
			trace.WithRegion(ctx, "outer", func() {
				trace.WithRegion(ctx, "inner", func() { task.End() })
				defer func() { recover() }()
				trace.WithRegion(ctx, "panics", func() { panic("on purpose") })
			})
		}()
		<-done
		task.End()
		time.Sleep(short)
	}
}

func logs(number int) time.Duration {
	ctx := context.Background()
	begin := time.Now()
	for i := 0; i < number; i++ {
		trace.Log(ctx, "cost", "of one message")
	}
	return time.Since(begin)
}
