package main

import (
	"context"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

const pause = 200 * time.Microsecond // long enough for a goroutine to park

type account struct {
	number int
	mu     sync.Mutex
	amount int
}

type queue struct {
	sync.Mutex
	jobs []int
}

type shop struct {
	name  string
	stock struct {
		mu    sync.RWMutex
		items map[string]int
	}
}

type store interface{ put(n int) }

type base struct {
	mu  sync.Mutex
	sum int
}

func (b *base) put(n int) {
	b.mu.Lock()
	b.sum += n
	b.mu.Unlock()
}

// The compiler makes its put(): a wrapper, which Go's profiles leave out.
type wrapped struct {
	name string
	*base
}

var (
	ledger  sync.Mutex
	total   int
	config  sync.RWMutex
	setting = map[string]string{"a": "1"}
	once    sync.Once
)

// Small enough to be inlined into its callers.
func addToTotal(n int) {
	ledger.Lock()
	total += n
	ledger.Unlock()
}

func (a *account) deposit(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.amount += n
}

func (s *shop) look(name string) int {
	s.stock.mu.RLock()
	defer s.stock.mu.RUnlock()
	return s.stock.items[name]
}

func (s *shop) fill(name string) {
	s.stock.mu.Lock()
	s.stock.items[name]++
	s.stock.mu.Unlock()
}

func readSetting(name string) string {
	config.RLock()
	defer config.RUnlock()
	return setting[name]
}

func writeSetting(name, value string) {
	config.Lock()
	setting[name] = value
	config.Unlock()
}

// meanwhile lets each of the waiters run into the lock while it is held.
func meanwhile(lock sync.Locker, waiters ...func()) {
	var done sync.WaitGroup
	lock.Lock()
	for _, waiter := range waiters {
		done.Add(1)
		go func() {
			defer done.Done()
			waiter()
		}()
		time.Sleep(pause)
	}
	lock.Unlock()
	done.Wait()
}

func receive[T any](from <-chan T) T { return <-from }

func send[T any](to chan<- T, value T) { to <- value }

func channels() {
	plain, buffered, named := make(chan int), make(chan int, 1), make(chan string)
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		for range plain {
			time.Sleep(pause)
		}
	}()
	send(plain, 1)
	send(plain, 2)
	close(plain)
	<-quit
	go func() {
		time.Sleep(pause)
		receive(buffered)
		receive(buffered)
		send(named, "a name")
	}()
	buffered <- 1
	buffered <- 2
	receive(named)
	stop := make(chan bool)
	go func() {
		time.Sleep(pause)
		stop <- true
	}()
	select {
	case <-stop:
	case value := <-plain2:
		addToTotal(value)
	}
	ready := sync.NewCond(&sync.Mutex{})
	go func() {
		time.Sleep(pause)
		ready.L.Lock()
		ready.Broadcast()
		ready.L.Unlock()
	}()
	ready.L.Lock()
	ready.Wait()
	ready.L.Unlock()
}

var plain2 = make(chan int)

// Deeper than what Go's profiles show of a stack.
func deep(levels int, what func()) int {
	if levels == 0 {
		what()
		return 0
	}
	return deep(levels-1, what) + 1
}

func labelled(tenant string, number int, what func()) func() {
	return func() {
		labels := pprof.Labels("tenant", tenant, "number", strconv.Itoa(number))
		pprof.Do(context.Background(), labels, func(context.Context) { what() })
	}
}

// Named as what is made to stay: an idle wait.
func refreshLoop(every *time.Ticker, quit <-chan struct{}) {
	for {
		select {
		case <-every.C:
		case <-quit:
			return
		}
	}
}

func contend(rounds int) {
	accounts := []*account{{number: 1}, {number: 2}}
	line := &queue{}
	corner := &shop{name: "corner"}
	corner.stock.items = map[string]int{}
	shelf := &base{}
	var things store = wrapped{"shelf", shelf}
	quit := make(chan struct{})
	every := time.NewTicker(3 * time.Millisecond)
	go refreshLoop(every, quit)
	for round := range rounds {
		meanwhile(&ledger, func() { addToTotal(1) }, func() { addToTotal(2) })
		add := accounts[0].deposit // a method value
		meanwhile(&accounts[0].mu, func() { add(1) })
		meanwhile(&accounts[1].mu, func() { accounts[1].deposit(round) })
		meanwhile(line, func() {
			line.Lock()
			defer line.Unlock()
			line.jobs = append(line.jobs, round)
		})
		meanwhile(&corner.stock.mu, func() { corner.look("tea") }, func() { corner.fill("tea") })
		meanwhile(&config, func() { readSetting("a") }, func() { writeSetting("a", "2") })
		meanwhile(config.RLocker(), func() { writeSetting("b", "3") }, func() { readSetting("b") })
		meanwhile(&shelf.mu, func() { things.put(round) })
		meanwhile(&ledger,
			labelled("blue", round%2, func() { addToTotal(3) }),
			labelled("größe", 7, func() { addToTotal(4) }))
		labelled("red", 1, channels)()
		channels()
		meanwhile(&ledger, func() { deep(150, func() { addToTotal(1) }) })
	}
	meanwhile(&ledger, func() { once.Do(func() { addToTotal(1) }) }, func() { once.Do(nil) })
	every.Stop()
	close(quit)
}

// A worker of hammer has its turn once the other one had its own.
func pass(in <-chan int, out chan<- int) {
	for number := range in {
		out <- number
	}
}

func hammer(duration time.Duration) {
	there, back := make(chan int), make(chan int)
	var fight sync.WaitGroup
	quit := make(chan struct{})
	for fighter := range 3 {
		fight.Add(1)
		go labelled("fighter", fighter, func() {
			defer fight.Done()
			for {
				select {
				case <-quit:
					return
				default:
					addToTotal(spin(300))
				}
			}
		})()
	}
	go pass(there, back)
	for begin := time.Now(); time.Since(begin) < duration; {
		for range 1000 {
			there <- 1
			<-back
		}
	}
	close(there)
	close(quit)
	fight.Wait()
}

func spin(times int) int {
	ledger.Lock()
	sum := 0
	for number := range times {
		sum += number * number % 7
	}
	ledger.Unlock()
	return sum
}

var never struct {
	lock  sync.Mutex
	table sync.RWMutex
	group sync.WaitGroup
	empty chan int
}

func waitFromTheBeginning() {
	never.lock.Lock()
	never.table.Lock()
	never.group.Add(1)
	never.empty = make(chan int)
	go receive(never.empty)
	go worker(never.empty)
	go labelled("early", 1, func() { never.lock.Lock() })()
}

// Idle, too.
func worker(numbers <-chan int) {
	for number := range numbers {
		addToTotal(number)
	}
}

func leave() {
	go never.lock.Lock()
	go labelled("late", 2, func() { never.lock.Lock() })()
	go never.table.RLock()
	go never.table.Lock()
	go never.group.Wait()
	go send(make(chan int), 1)
	go func() { select {} }()
	go func() {
		select {
		case <-never.empty:
		case plain2 <- 1:
		}
	}()
	go labelled("late", 3, func() {
		lock := &sync.Mutex{}
		lock.Lock()
		sync.NewCond(lock).Wait()
	})()
	go deep(3, func() { (&account{}).waitFor(never.empty) })
	// Woken, and parked once more: we are quicker at the lock.
	again := &account{}
	again.mu.Lock()
	go again.deposit(1)
	time.Sleep(pause)
	again.mu.Unlock()
	again.mu.Lock()
	time.Sleep(5 * time.Millisecond) // until they wait
}

func (a *account) waitFor(numbers <-chan int) {
	for number := range numbers {
		a.deposit(number)
	}
}
