package main

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"sort"
	"strings"

	"ebpfprof.test/harness/traffic"
)

// A searchIndex ranks articles for a word. Sixteen clients search at once, each for a millisecond
// of CPU time: with GOMAXPROCS=1, goroutines wait for each other while a CPU is idle.
type searchIndex struct{ articles []string }

type searchHit struct {
	article string
	score   uint32
}

//go:noinline
func (s *searchIndex) candidates(word string) []string {
	var matching []string
	for _, article := range s.articles {
		if strings.Contains(article, word) {
			matching = append(matching, article)
		}
	}
	return matching
}

//go:noinline
func (s *searchIndex) score(articles []string, word string) []searchHit {
	hits := make([]searchHit, 0, len(articles))
	for _, article := range articles {
		sum := fnv.New32a()
		fmt.Fprint(sum, article, word)
		hits = append(hits, searchHit{article, sum.Sum32()})
	}
	return hits
}

//go:noinline
func (s *searchIndex) rank(hits []searchHit) []searchHit {
	sort.Slice(hits, func(i, j int) bool { return hits[i].score > hits[j].score })
	return hits[:10]
}

func (s *searchIndex) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	word := "word" + r.URL.Path[len(r.URL.Path)-1:]
	for _, hit := range s.rank(s.score(s.candidates(word), word)) {
		fmt.Fprintln(w, hit.score, hit.article[:20])
	}
}

func newSearchIndex() *searchIndex {
	index := &searchIndex{}
	for i := 0; i < 8000; i++ {
		text := fmt.Sprintf("article %d is about word%d and about word%d", i, i%10, i/7%10)
		index.articles = append(index.articles, text)
	}
	return index
}

func init() { register("fewprocessors", serveArticles) }

func serveArticles() { underLoad(newSearchIndex(), traffic.Load{Clients: 16}) }
