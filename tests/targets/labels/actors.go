package main

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ebpfprof.test/harness"
)

//go:noinline
func receive(c chan int) { <-c }

//go:noinline
func lock(mu *sync.Mutex) { mu.Lock() }

//go:noinline
func unlock(mu *sync.Mutex) { mu.Unlock() }

//go:noinline
func lockUnlabelled(mu *sync.Mutex) { mu.Lock() }

//go:noinline
func unlockUnlabelled(mu *sync.Mutex) { mu.Unlock() }

// An actor is a goroutine. In each round it waits in receive and in lock, until main releases the
// lock in unlockUnlabelled, and then releases it in unlock while another goroutine waits for it in
// lockUnlabelled. Neither main nor the other one has labels.
type actor struct {
	name   string
	start  func(*actor)
	rounds int
	ctx    context.Context // has its labels while it acts

	id, ready, mayRelease int64
	values                chan int
	mu                    sync.Mutex
	ended                 chan bool
}

// A performance has what the actor did, and its labels as Go itself reports them.
type performance struct {
	Name   string      `json:"name"`
	Rounds int         `json:"rounds"`
	Labels [][2][]byte `json:"labels"`
}

//go:noinline
func (a *actor) act(ctx context.Context) {
	a.ctx = ctx
	atomic.StoreInt64(&a.id, harness.GoroutineID())
	for i := 0; i < a.rounds; i++ {
		receive(a.values)
		lock(&a.mu)
		atomic.AddInt64(&a.ready, 1)
		poll(&a.mayRelease, int64(i+1))
		unlock(&a.mu)
	}
}

// poll waits without an event for a block profile.
func poll(counter *int64, value int64) {
	for atomic.LoadInt64(counter) < value {
		time.Sleep(50 * time.Microsecond)
	}
}

// begin starts the actor and returns when it waits; only main calls it.
func (a *actor) begin(rounds int) {
	a.rounds, a.values, a.ended = rounds, make(chan int), make(chan bool)
	go func() {
		a.start(a)
		close(a.ended)
	}()
	poll(&a.id, 1)
	harness.AwaitBlocked(a.id)
}

// perform makes an actor act after begin; only main calls it.
func (a *actor) perform() performance {
	for i := 0; i < a.rounds; i++ {
		harness.AwaitBlocked(a.id)
		a.mu.Lock()
		a.values <- 1
		harness.AwaitBlocked(a.id)
		unlockUnlabelled(&a.mu)
		poll(&a.ready, int64(i+1))
		var other int64
		ended := make(chan bool)
		go func() {
			atomic.StoreInt64(&other, harness.GoroutineID())
			lockUnlabelled(&a.mu)
			a.mu.Unlock()
			close(ended)
		}()
		poll(&other, 1)
		harness.AwaitBlocked(other)
		atomic.StoreInt64(&a.mayRelease, int64(i+1))
		<-ended
	}
	<-a.ended
	done := performance{Name: a.name, Rounds: a.rounds, Labels: [][2][]byte{}}
	pprof.ForLabels(a.ctx, func(key, value string) bool {
		done.Labels = append(done.Labels, [2][]byte{[]byte(key), []byte(value)})
		return true
	})
	return done
}

// with returns an actor whose goroutine sets these labels itself: all have the same stack.
func with(name string, labels ...string) *actor {
	return &actor{name: name, start: func(a *actor) {
		ctx := pprof.WithLabels(context.Background(), pprof.Labels(labels...))
		pprof.SetGoroutineLabels(ctx)
		a.act(ctx)
	}}
}

func numbered(count int, backwards bool) []string {
	labels := []string{}
	for i := 0; i < count; i++ {
		n := i
		if backwards {
			n = count - 1 - i
		}
		labels = append(labels, fmt.Sprintf("key%03d", n), fmt.Sprintf("value %d", n))
	}
	return labels
}

func actors() []*actor {
	all := []*actor{
		{name: "never labelled", start: func(a *actor) { a.act(context.Background()) }},
		with("first of the same stack", "request", "first"),
		with("second of the same stack", "request", "second"),
		with("once more", "request", "first"),
		with("several", "tenant", "blue", "request", "first", "attempt", "1"),
		with("several, in another order", "attempt", "1", "request", "first", "tenant", "blue"),
		with("swapped", "first", "request"),
		with("no set", []string{}...),
		with("an empty value", "empty", "", "full", "1"),
		with("key and value as long as fits", strings.Repeat("k", 64), strings.Repeat("v", 128)),
		with("a key too long", strings.Repeat("k", 65), "1"),
		with("a key too long, and another one", strings.Repeat("k", 66), "1", "by", "two"),
		with("a value too long", "k", strings.Repeat("v", 129)),
		with("another with the same beginning", "k", strings.Repeat("v", 129)+"w"),
		with("both much too long", strings.Repeat("k", 5000), strings.Repeat("v", 50000)),
		with("the same at first", "k", "the same at first, 1"),
		with("the same at first, too", "k", "the same at first, 2"),
		with("the same for long", "k", strings.Repeat("v", 100)+"1"),
		with("the same for long, too", "k", strings.Repeat("v", 100)+"2"),
		with("not ASCII", "ключ", "значение 🙂"),
		with("cut in a character", "long", "."+strings.Repeat("🙂", 50)),
		with("no UTF-8", "bytes", "\xff\x00\xfe."),
		with("eight", numbered(8, false)...),
		with("nine", numbered(9, false)...),
		with("nine backwards", numbered(9, true)...),
		with("forty", numbered(40, false)...),
		{name: "in Do", start: func(a *actor) {
			pprof.Do(context.Background(), pprof.Labels("by", "Do"), a.act)
		}},
		{name: "in two Do", start: func(a *actor) {
			outer := pprof.Labels("by", "outer", "depth", "1")
			pprof.Do(context.Background(), outer, func(ctx context.Context) {
				pprof.Do(ctx, pprof.Labels("depth", "2", "more", "yes"), a.act)
			})
		}},
		{name: "after the inner Do", start: func(a *actor) {
			pprof.Do(context.Background(), pprof.Labels("by", "outer"), func(ctx context.Context) {
				pprof.Do(ctx, pprof.Labels("by", "inner"), func(context.Context) {})
				a.act(ctx)
			})
		}},
		{name: "after Do", start: func(a *actor) {
			pprof.Do(context.Background(), pprof.Labels("by", "Do"), func(context.Context) {})
			a.act(context.Background())
		}},
		{name: "cleared", start: func(a *actor) {
			ctx := pprof.WithLabels(context.Background(), pprof.Labels("by", "Set"))
			pprof.SetGoroutineLabels(ctx)
			pprof.SetGoroutineLabels(context.Background())
			a.act(context.Background())
		}},
		{name: "inherited", start: func(a *actor) {
			pprof.Do(context.Background(), pprof.Labels("by", "parent"), func(ctx context.Context) {
				ended := make(chan bool)
				go func() {
					a.act(ctx)
					close(ended)
				}()
				<-ended
			})
		}},
	}
	// In a map with a few buckets, of which one overflows now and then.
	for i := 0; i < 4; i++ {
		all = append(all, with("twelve", numbered(12, false)...))
		all = append(all, with("thirteen", numbered(13, true)...))
	}
	return all
}
