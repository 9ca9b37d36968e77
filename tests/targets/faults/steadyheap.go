package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"ebpfprof.test/harness/traffic"
)

// A dictionary is large and is not changed. A collection takes long, but is rarely needed.
type dictionary struct{ entries map[string]*dictionaryEntry }

const (
	dictionaryWords = 400_000
	pageWords       = 40
)

type dictionaryEntry struct {
	word, meaning string
}

//go:noinline
func (d *dictionary) lookup(word string) *dictionaryEntry { return d.entries[word] }

//go:noinline
func (d *dictionary) print(w io.Writer, entry *dictionaryEntry) {
	fmt.Fprintf(w, "%s: %s\n", entry.word, entry.meaning)
}

func (d *dictionary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var page bytes.Buffer
	for i := 0; i < pageWords; i++ {
		d.print(&page, d.lookup(fmt.Sprint("word", keyOf(r)*pageWords+i)))
	}
	w.Write(page.Bytes())
}

func init() { register("steadyheap", serveWords) }

func serveWords() {
	book := &dictionary{entries: map[string]*dictionaryEntry{}}
	for i := 0; i < dictionaryWords; i++ {
		word := fmt.Sprint("word", i)
		meaning := strings.Repeat("What it means. ", 20)
		book.entries[word] = &dictionaryEntry{word, meaning}
	}
	underLoad(book, traffic.Load{PerSecond: 400})
}
