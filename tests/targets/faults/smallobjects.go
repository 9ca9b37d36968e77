package main

import (
	"fmt"
	"net/http"
	"strings"

	"ebpfprof.test/harness/traffic"
)

// A templateEngine parses its page in each request, into thousands of small objects.
type templateEngine struct{ page string }

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
	fmt.Fprint(w, e.render(e.parse()))
}

func init() { register("smallobjects", serveTemplates) }

func serveTemplates() {
	engine := &templateEngine{page: strings.Repeat("title of the page and a value of it ", 2000)}
	underLoad(engine, traffic.Load{Clients: 4})
}
