package harness

import (
	"sync/atomic"
	"time"
)

// A Partner is a goroutine that blocks once a round. The goroutine that drives it never blocks
// itself: it polls until the partner is parked, spins for some time and wakes it.
type Partner struct {
	id           atomic.Int64
	begun, ended atomic.Int64
	stopped      atomic.Bool
}

// NewPartner starts a goroutine that calls block once for each Begin.
func NewPartner(block func()) *Partner {
	p := &Partner{}
	go p.loop(block)
	return p
}

func (p *Partner) loop(block func()) {
	p.Arrive()
	for round := int64(1); ; round++ {
		Poll(func() bool { return p.begun.Load() >= round || p.stopped.Load() })
		if p.stopped.Load() {
			return
		}
		block()
		p.ended.Store(round)
	}
}

// Begin begins a round.
func (p *Partner) Begin() { p.begun.Add(1) }

// HasEnded returns whether the round is over.
func (p *Partner) HasEnded() bool { return p.ended.Load() == p.begun.Load() }

// AwaitEnd polls until the round is over.
func (p *Partner) AwaitEnd() { Poll(p.HasEnded) }

// AwaitParked polls until the partner waits for what a block profile measures.
func (p *Partner) AwaitParked() { p.Await(BlockedStates...) }

// AwaitInput polls until the partner waits in the network poller.
func (p *Partner) AwaitInput() { p.Await("IO wait") }

// Await polls until the partner is in one of the states.
func (p *Partner) Await(states ...string) {
	Poll(func() bool { return p.id.Load() != 0 })
	AwaitState(p.id.Load(), states...)
}

// IsIn returns whether the partner is in one of the states.
func (p *Partner) IsIn(states []string) bool { return isOneOf(StateOf(p.id.Load()), states) }

// Stop ends the goroutine after its round.
func (p *Partner) Stop() { p.stopped.Store(true) }

// Arrive and Leave are the begin and the end of a goroutine that Fresh started.
func (p *Partner) Arrive() { p.id.Store(GoroutineID()) }
func (p *Partner) Leave()  { p.ended.Add(1) }

// Rounds makes one partner block n times. prepare may be nil.
func Rounds(n int, prepare, block, wake func()) {
	p := NewPartner(block)
	for i := 0; i < n; i++ {
		if prepare != nil {
			prepare()
		}
		p.Begin()
		p.AwaitParked()
		Pause(i)
		wake()
		p.AwaitEnd()
	}
	p.Stop()
}

// Crowd makes several partners block in every round, all at once: n events in all.
func Crowd(n, size int, prepare, block, wake func()) {
	if n%size != 0 {
		panic("a crowd's events are not a multiple of its size")
	}
	var partners []*Partner
	for i := 0; i < size; i++ {
		partners = append(partners, NewPartner(block))
	}
	for i := 0; i < n/size; i++ {
		if prepare != nil {
			prepare()
		}
		for _, p := range partners {
			p.Begin()
			p.AwaitParked()
		}
		Pause(i)
		wake()
		for _, p := range partners {
			p.AwaitEnd()
		}
	}
	for _, p := range partners {
		p.Stop()
	}
}

// Fresh runs `start` n times; it must start a goroutine that calls Arrive, blocks and calls
// Leave on its argument, the partner.
func Fresh(n int, start func(p *Partner), wake func()) {
	for i := 0; i < n; i++ {
		p := &Partner{}
		p.Begin()
		start(p)
		p.AwaitParked()
		Pause(i)
		wake()
		p.AwaitEnd()
	}
}

// Together runs f in several goroutines and polls until they have ended.
func Together(goroutines int, f func()) {
	var partners []*Partner
	for i := 0; i < goroutines; i++ {
		p := NewPartner(f)
		p.Begin()
		partners = append(partners, p)
	}
	for _, p := range partners {
		p.AwaitEnd()
		p.Stop()
	}
}

// Pause spins for 60 to 200 microseconds, so that the waits of an operation differ.
func Pause(round int) {
	Spin(time.Duration(60+20*(round%8)) * time.Microsecond)
}
