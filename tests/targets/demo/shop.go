package main

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Shop is the service: what its handlers share.
type Shop struct {
	config   Config
	prices   PriceCache
	invoices *InvoicePool
	stock    Stock
	audit    AuditLog
}

// NewShop makes a shop whose invoices are printed by two workers.
func NewShop() *Shop {
	return &Shop{
		config:   Config{discount: 5},
		prices:   PriceCache{entries: map[int]price{}},
		invoices: NewInvoicePool(2),
		stock:    Stock{left: map[int]int{}},
		audit:    AuditLog{events: make(chan string, 16)},
	}
}

// Routes are the handlers by path.
func (s *Shop) Routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/product", s.handleProduct)
	mux.HandleFunc("/checkout", s.handleCheckout)
	return mux
}

func (s *Shop) handleProduct(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, s.offer(productOf(r)))
}

func (s *Shop) handleCheckout(w http.ResponseWriter, r *http.Request) {
	product := productOf(r)
	s.stock.Reserve(product)
	invoice := s.invoices.Print(product, s.offer(product))
	s.audit.Record(invoice)
	fmt.Fprintln(w, invoice)
}

func (s *Shop) offer(product int) int {
	return s.prices.Get(product) * (100 - s.config.Discount()) / 100
}

func productOf(r *http.Request) int {
	product, err := strconv.Atoi(r.URL.Query().Get("id"))
	if err != nil {
		return 0
	}
	return product
}

// PriceCache keeps prices for a while. Its flaw is a common one: it asks the slow catalog while
// it holds its lock, so that all customers wait for one product.
type PriceCache struct {
	mu      sync.Mutex
	entries map[int]price
}

type price struct {
	cents  int
	expiry time.Time
}

// Get returns a product's price in cents.
func (c *PriceCache) Get(product int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.entries[product]
	if !ok || time.Now().After(entry.expiry) {
		entry = price{askCatalog(product), time.Now().Add(50 * time.Millisecond)}
		c.entries[product] = entry
	}
	return entry.cents
}

// askCatalog stands for a call of another service.
func askCatalog(product int) int {
	time.Sleep(time.Millisecond)
	return 100 + int(crc32.ChecksumIEEE([]byte(strconv.Itoa(product)))%10000)
}

// Config is read with every request and reloaded now and then.
type Config struct {
	mu       sync.RWMutex
	discount int
}

// Discount returns the discount of the day in percent.
func (c *Config) Discount() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.discount
}

// ReloadForever holds the write lock as long as it reads the settings.
func (c *Config) ReloadForever() {
	for range time.Tick(20 * time.Millisecond) {
		c.mu.Lock()
		time.Sleep(2 * time.Millisecond)
		c.discount = (c.discount + 1) % 10
		c.mu.Unlock()
	}
}

// InvoicePool prints invoices with a few workers, too few for all customers.
type InvoicePool struct {
	orders chan order
}

type order struct {
	product, cents int
	invoice        chan string
}

// NewInvoicePool starts the workers.
func NewInvoicePool(workers int) *InvoicePool {
	pool := &InvoicePool{make(chan order)}
	for i := 0; i < workers; i++ {
		go pool.work()
	}
	return pool
}

// Print waits for a worker and for its print.
func (p *InvoicePool) Print(product, cents int) string {
	o := order{product, cents, make(chan string)}
	p.orders <- o
	return <-o.invoice
}

func (p *InvoicePool) work() {
	for o := range p.orders {
		o.invoice <- signInvoice(fmt.Sprintf("product %d: %d cents", o.product, o.cents))
	}
}

func signInvoice(text string) string {
	sum := sha256.Sum256([]byte(text))
	for i := 0; i < 2000; i++ {
		sum = sha256.Sum256(sum[:])
	}
	return fmt.Sprintf("%s, signed %x", text, sum[:4])
}

// Stock counts items; a goroutine that finds a shelf empty fills it while the others wait.
type Stock struct {
	mu   sync.Mutex
	left map[int]int
}

// Reserve takes one item off the shelf.
func (s *Stock) Reserve(product int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[product] == 0 {
		s.refill(product)
	}
	s.left[product]--
}

func (s *Stock) refill(product int) {
	time.Sleep(500 * time.Microsecond)
	s.left[product] = 20
}

// AuditLog hands events to one slow writer.
type AuditLog struct {
	events chan string
}

// Record waits when the writer is behind.
func (a *AuditLog) Record(event string) { a.events <- event }

// WriteForever writes the events in batches.
func (a *AuditLog) WriteForever() {
	var batch []string
	for event := range a.events {
		if batch = append(batch, event); len(batch) == 8 {
			time.Sleep(10 * time.Millisecond)
			batch = batch[:0]
		}
	}
}
