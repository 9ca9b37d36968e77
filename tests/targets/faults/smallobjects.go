package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"ebpfprof.test/harness/traffic"
)

// A templateEngine parses its page in each request, into thousands of small objects. It keeps the
// last ones.
type templateEngine struct {
	page   string
	mu     sync.Mutex
	recent [recentPages]*templateToken
	parsed int
}

const recentPages = 32

type templateToken struct {
	text     *string
	position *int
	next     *templateToken
}

//go:noinline
func (e *templateEngine) parse() *templateToken {
	first := &templateToken{}
	last := first
	for i, word := range strings.Fields(e.page) {
		last.next = newTemplateToken(word, i)
		last = last.next
	}
	return first.next
}

//go:noinline
func (e *templateEngine) keep(page *templateToken) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recent[e.parsed%recentPages] = page
	e.parsed++
}

//go:noinline
func newTemplateToken(word string, position int) *templateToken {
	text, at := "<"+word+">", position
	return &templateToken{text: &text, position: &at}
}

//go:noinline
func (e *templateEngine) render(token *templateToken) (size int) {
	for ; token != nil; token = token.next {
		size += len(*token.text) + *token.position
	}
	return size
}

func (e *templateEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page := e.parse()
	e.keep(page)
	fmt.Fprint(w, e.render(page))
}

func init() { register("smallobjects", serveTemplates) }

func serveTemplates() {
	engine := &templateEngine{page: strings.Repeat("title of the page and a value of it ", 2000)}
	underLoad(engine, traffic.Load{Clients: 4})
}
