package main

import (
	"fmt"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A dictionary is large, is not changed, and costs few collections.
type dictionary struct{ entries map[string]*dictionaryEntry }

type dictionaryEntry struct {
	word     string
	meanings []string
	examples [8]string
}

//go:noinline
func (d *dictionary) lookup(word string) *dictionaryEntry { return d.entries[word] }

//go:noinline
func (d *dictionary) print(entry *dictionaryEntry) string {
	text := entry.word
	for i, meaning := range entry.meanings {
		text += fmt.Sprintf("\n%d. %s", i+1, meaning)
	}
	return text
}

func (d *dictionary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, d.print(d.lookup("word"+r.URL.Path[1:])))
}

func init() { register("steadyheap", serveWords) }

func serveWords() {
	book := &dictionary{entries: map[string]*dictionaryEntry{}}
	for i := 0; i < 500_000; i++ {
		word := fmt.Sprint("word", i)
		meanings := []string{"first meaning of " + word, "second meaning of " + word}
		book.entries[word] = &dictionaryEntry{word: word, meanings: meanings}
	}
	underLoad(book, traffic.Load{PerSecond: 200})
}
