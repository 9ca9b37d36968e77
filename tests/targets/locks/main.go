// Locks has locks in package variables and on the heap. It prints their addresses, with the names
// that a profiler should find, and which functions lock those on the heap:
//
//	function ADDRESS                of main.main, as loaded
//	variable ADDRESS NAME           of a lock in a package variable
//	caller PC KIND NAME             the return address of a call in a function that locks the lock
//
// NAME is "-" if a profiler can't find one.
package main

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync"

	"ebpfprof.test/harness"
	"ebpfprof.test/locks/store"
)

// Package variables.

type inner struct {
	count int
	mu    sync.Mutex
}

type registry struct {
	name  string
	first inner
	rw    sync.RWMutex
	anon  struct {
		ready bool
		mu    sync.Mutex
	}
	grid [2][3]inner
}

type embedding struct {
	values []int
	sync.Mutex
}

type box[T any] struct {
	value T
	mu    sync.Mutex
}

type pair struct {
	key   string
	boxed box[int32]
}

// The zero-sized field has the address of what follows it.
type padded struct {
	_   struct{}
	mu  sync.Mutex
	end struct{}
}

var (
	global     sync.Mutex
	globalRW   sync.RWMutex
	plain      registry
	shards     [16]inner
	embedded   embedding
	generic    box[string]
	genericIn  pair
	hollow     padded
	once       sync.Once
	pool       = &registry{name: "pool"}
	listed     = []inner{{count: 1}, {count: 2}, {count: 3}}
	chained    = &link{next: &link{count: 1}}
	anonymous  struct{ sync.Mutex }
	notALock   = 7
	onTheHeap  *registry
	listOnHeap []inner
	shared     *priceCache
	seen       sync.Map

	// Its wrappers have no package.
	anyLocker sync.Locker = &struct {
		sync.Mutex
		count int
	}{}
)

type link struct {
	count int
	mu    sync.Mutex
	next  *link
}

// Types on the heap.

type priceCache struct {
	prices map[string]int
	mu     sync.Mutex
}

func (c *priceCache) get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	note("sync.Mutex", "main.priceCache.mu")
	return c.prices[name]
}

func (c *priceCache) later() func() {
	return func() {
		c.mu.Lock()
		note("sync.Mutex", "main.priceCache.mu")
		c.mu.Unlock()
	}
}

type several struct {
	reads  sync.RWMutex
	queue  sync.Mutex
	totals sync.Mutex
}

//go:noinline
func (s *several) add() {
	s.totals.Lock()
	note("sync.Mutex", "main.several.{queue,totals}")
	s.totals.Unlock()
}

//go:noinline
func (s *several) read() {
	s.reads.RLock()
	note("sync.RWMutex", "main.several.reads")
	s.reads.RUnlock()
}

// Two functions that have only one type in common.

type left struct {
	id int
	mu sync.Mutex
}

type right struct {
	id int
	mu sync.Mutex
}

//go:noinline
func (l *left) swap(r *right) {
	l.mu.Lock()
	note("sync.Mutex", "main.left.mu")
	l.mu.Unlock()
	r.id++
}

//go:noinline
func (l *left) alone() {
	l.mu.Lock()
	note("sync.Mutex", "main.left.mu")
	l.mu.Unlock()
}

// In an account it is account.balance.mu, but functions of balance see only balance.mu.

type balance struct {
	cents int
	mu    sync.Mutex
}

type account struct {
	owner   string
	balance balance
	other   balance
}

//go:noinline
func (b *balance) deposit() {
	b.mu.Lock()
	note("sync.Mutex", "main.balance.mu")
	b.mu.Unlock()
}

//go:noinline
func (a *account) transfer() {
	a.other.mu.Lock()
	note("sync.Mutex", "main.balance.mu")
	a.other.mu.Unlock()
}

type table struct {
	size  int
	slots [8]struct {
		mu    sync.RWMutex
		value int
	}
}

//go:noinline
func (t *table) set(at int) {
	t.slots[at].mu.Lock()
	note("sync.RWMutex", "main.table.slots[].mu")
	t.slots[at].mu.Unlock()
}

//go:noinline
func (e *embedding) push() {
	e.Lock()
	note("sync.Mutex", "main.embedding.Mutex")
	e.Unlock()
}

//go:noinline
func (b *box[T]) put(value T) {
	b.mu.Lock()
	note("sync.Mutex", "main.box[...].mu")
	b.value = value
	b.mu.Unlock()
}

// The value that contains it has a lock, too.
//
//go:noinline
func putInner(b *box[inner]) {
	b.mu.Lock()
	note("sync.Mutex", "main.box[...].{value.mu,mu}")
	b.mu.Unlock()
}

type tree struct {
	left, right *tree
	root        *node
}

type node struct {
	parent *node
	mu     sync.Mutex
}

//go:noinline
func (t *tree) visit() {
	t.root.mu.Lock()
	note("sync.Mutex", "main.node.mu")
	t.root.mu.Unlock()
}

//go:noinline
func visitAll(shards []*store.Shard) {
	for _, shard := range shards {
		shard.Lock()
		note("sync.RWMutex", "ebpfprof.test/locks/store.Shard.RWMutex")
		shard.Unlock()
	}
}

// Only package store can lock store.Store.mu, so it must be the other.
//
//go:noinline
func withStore(s *store.Store, c *priceCache) {
	c.mu.Lock()
	note("sync.Mutex", "main.priceCache.mu")
	s.Shards[0].Values = nil
	c.mu.Unlock()
}

//go:noinline
func worker() {
	var mu sync.Mutex
	done := make(chan bool)
	go func() {
		mu.Lock()
		note("sync.Mutex", "main.worker.mu")
		mu.Unlock()
		close(done)
	}()
	mu.Lock()
	note("sync.Mutex", "main.worker.mu")
	mu.Unlock()
	<-done
}

// The function does not show the lock's owner, which need not be the cache.
//
//go:noinline
func lockAny(mu *sync.Mutex, c *priceCache) {
	mu.Lock()
	note("sync.Mutex", "-")
	c.prices = nil
	mu.Unlock()
}

//go:noinline
func lockLocker(l sync.Locker, c *priceCache) {
	l.Lock()
	note("sync.Mutex", "-")
	c.prices = nil
	l.Unlock()
}

// The address of the variable itself is on the stack, not that of the cache.
//
//go:noinline
func rebind() {
	c := &priceCache{}
	done := make(chan bool)
	go func() {
		c.mu.Lock()
		note("sync.Mutex", "main.priceCache.mu")
		c.mu.Unlock()
		c = &priceCache{}
		close(done)
	}()
	<-done
	c = nil
}

//go:noinline
func (c *priceCache) result() *right {
	c.mu.Lock()
	note("sync.Mutex", "main.priceCache.mu")
	c.mu.Unlock()
	return &right{}
}

//go:noinline
func namedResult() (c *priceCache) {
	c = &priceCache{}
	c.mu.Lock()
	note("sync.Mutex", "main.priceCache.mu")
	c.mu.Unlock()
	return c
}

//go:noinline
func lockOuter(outer *store.Outer) {
	outer.Lock()
	note("sync.Mutex", "ebpfprof.test/locks/store.Outer.hidden.Mutex")
	outer.Unlock()
}

//go:noinline
func lockedResult() (mu *sync.Mutex) {
	mu = &sync.Mutex{}
	mu.Lock()
	note("sync.Mutex", "main.lockedResult.mu")
	return mu
}

type holder struct{ table *table }

//go:noinline
func hold(keeper *store.Keeper, h *holder) {
	h.table.slots[0].mu.Lock()
	note("sync.RWMutex", "main.table.slots[].mu")
	h.table.slots[0].mu.Unlock()
}

type borrower struct {
	id int
	mu *sync.Mutex
}

//go:noinline
func (b *borrower) use() {
	b.mu.Lock()
	note("sync.Mutex", "main.borrower.mu")
	b.mu.Unlock()
}

// The functions of both types tell the lock behind the pointer.

type client struct {
	id int
	mu sync.Mutex
}

type server struct {
	mu   sync.Mutex
	peer *client
}

//go:noinline
func (s *server) drop() {
	s.peer.mu.Lock()
	note("sync.Mutex", "main.client.mu")
	s.peer.mu.Unlock()
}

//go:noinline
func (c *client) send() {
	c.mu.Lock()
	note("sync.Mutex", "main.client.mu")
	c.mu.Unlock()
}

// The compiler inlines it into a function that uses more than it does. With a call of Lock it would
// be too large for that; what it could lock is the same.
func lockOnly(l *left) {
	note("sync.Mutex", "main.left.mu")
}

//go:noinline
func lockBeside(l *left) {
	l.mu.Lock()
	lockOnly(l)
	shared.prices = nil
	l.mu.Unlock()
}

// Behind package variables.

//go:noinline
func lockShared() {
	shared.mu.Lock()
	note("sync.Mutex", "main.priceCache.mu")
	shared.mu.Unlock()
}

//go:noinline
func lockSharedOr(l *left) {
	shared.mu.Lock()
	note("sync.Mutex", "{main.left.mu,main.priceCache.mu}")
	shared.mu.Unlock()
	l.id++
}

func lockListed(at int) {
	listOnHeap[at].mu.Lock()
	note("sync.Mutex", "main.inner.mu")
	listOnHeap[at].mu.Unlock()
}

//go:noinline
func lockGlobal() {
	global.Lock()
	note("sync.Mutex", "-")
	global.Unlock()
}

// note prints the return address in its caller.
//
//go:noinline
func note(kind, name string) {
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	fmt.Printf("caller %#x %s %s\n", pcs[0], kind, name)
}

func variable(lock interface{}, name string) {
	fmt.Printf("variable %#x %s\n", reflect.ValueOf(lock).Pointer(), name)
}

func main() {
	fmt.Printf("function %#x\n", reflect.ValueOf(main).Pointer())
	variables()
	heap()
	callC()
	harness.Ready()
	harness.AwaitEnd()
}

func variables() {
	variable(&global, "main.global")
	variable(&globalRW, "main.globalRW")
	variable(&plain.first.mu, "main.plain.first.mu")
	variable(&plain.rw, "main.plain.rw")
	variable(&plain.anon.mu, "main.plain.anon.mu")
	variable(&plain.grid[1][2].mu, "main.plain.grid[1][2].mu")
	variable(&shards[0].mu, "main.shards[0].mu")
	variable(&shards[15].mu, "main.shards[15].mu")
	variable(&embedded.Mutex, "main.embedded.Mutex")
	variable(&generic.mu, "main.generic.mu")
	variable(&genericIn.boxed.mu, "main.genericIn.boxed.mu")
	variable(&hollow.mu, "main.hollow.mu")
	fmt.Printf("variable %#x main.once.m\n", reflect.ValueOf(&once).Elem().FieldByName("m").UnsafeAddr())
	variable(&pool.first.mu, "main.pool.first.mu")
	variable(&listed[2].mu, "main.listed[2].mu")
	variable(&chained.next.mu, "main.chained.next.mu")
	variable(&anonymous.Mutex, "main.anonymous.Mutex")
	variable(&store.Shared.Shards[2].RWMutex, "ebpfprof.test/locks/store.Shared.Shards[2].RWMutex")
	variable(store.Shared.Mu(), "ebpfprof.test/locks/store.Shared.mu")
	variable(&notALock, "main.notALock")
	onTheHeap = new(registry)
	listOnHeap = make([]inner, len(os.Args)+3)
	variable(&onTheHeap.rw, "-")
	variable(&listOnHeap[2].mu, "-")
}

func heap() {
	cache := &priceCache{}
	cache.get("")
	cache.later()()
	locks := &several{}
	locks.add()
	locks.read()
	l := &left{}
	l.swap(&right{})
	l.alone()
	a := &account{}
	a.transfer()
	a.balance.deposit()
	new(table).set(3)
	new(embedding).push()
	new(box[int]).put(1)
	new(box[string]).put("")
	(&tree{root: &node{}}).visit()
	visitAll([]*store.Shard{{}, {}})
	withStore(store.New(""), cache)
	worker()
	lockAny(&cache.mu, cache)
	lockLocker(&cache.mu, cache)
	lockGlobal()
	shared = cache
	lockShared()
	lockSharedOr(l)
	lockListed(1)
	lockBeside(l)
	rebind()
	cache.result()
	namedResult()
	lockedResult()
	hold(new(store.Keeper), &holder{new(table)})
	lockOuter(new(store.Outer))
	new(store.Guard[int64]).Set(1, note)
	(&borrower{mu: &l.mu}).use()
	putInner(new(box[inner]))
	(&server{peer: &client{}}).drop()
	new(client).send()
	anyLocker.Lock()
	seen.LoadOrStore(1, 2)
	store.New("").Do(note)
}
