package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// A tickPlant sends each price to two thousand subscriptions, which count what they cost under the
// lock of the list of subscriptions. All of them queue up behind a publication, which holds it
// until it is in the journal; then the lock is handed from one to the next. No requests come.
type tickPlant struct {
	mu            sync.Mutex
	fees          map[string]int
	subscriptions []chan int
	journal       *sql.DB
}

//go:noinline
func (p *tickPlant) charge(customer string, cents int) {
	p.mu.Lock()
	p.fees[customer] += cents
	p.fees["all"] += cents
	p.mu.Unlock()
}

//go:noinline
func (p *tickPlant) subscribe(customer string, prices <-chan int) {
	for price := range prices {
		for field := 0; field < 3; field++ {
			p.charge(customer, price*field)
		}
	}
}

//go:noinline
func (p *tickPlant) publish(price int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, prices := range p.subscriptions {
		select {
		case prices <- price:
		default: // it has not taken the last one yet
		}
	}
	query(context.Background(), p.journal, "12ms INSERT INTO ticks")
}

func publishTicks() {
	plant := &tickPlant{fees: map[string]int{}, journal: openDatabase(2)}
	for i := 0; i < 2000; i++ {
		prices := make(chan int, 1)
		plant.subscriptions = append(plant.subscriptions, prices)
		go plant.subscribe(fmt.Sprint("customer ", i), prices)
	}
	go func() {
		for tick := range time.Tick(30 * time.Millisecond) {
			plant.publish(tick.Second())
		}
	}()
}

func init() { register("crowdedlock", publishTicks) }
