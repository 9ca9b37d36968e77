package main

import (
	"fmt"
	"net/http"

	"ebpfprof.test/harness/traffic"
)

// A catalogue is large and has many pointers. With GOGC=10, the collector marks all of it each
// time that requests have allocated a tenth of its size.
type catalogue struct{ articles map[int]*catalogueArticle }

type catalogueArticle struct {
	title    string
	prices   []*cataloguePrice
	variants []*catalogueArticle
}

type cataloguePrice struct {
	currency string
	cents    int
}

//go:noinline
func newCatalogueArticle(number, variants int) *catalogueArticle {
	article := &catalogueArticle{title: fmt.Sprintf("article %d", number)}
	for _, currency := range []string{"EUR", "USD", "JPY", "GBP"} {
		article.prices = append(article.prices, &cataloguePrice{currency, number * 100})
	}
	for i := 0; i < variants; i++ {
		article.variants = append(article.variants, newCatalogueArticle(number+i, 0))
	}
	return article
}

// offer copies an article with its variants and lowers the prices.
//
//go:noinline
func (c *catalogue) offer(number int) *catalogueArticle {
	article := c.articles[number%len(c.articles)]
	offered := newCatalogueArticle(number, 20*len(article.variants))
	for _, variant := range offered.variants {
		variant.prices[0].cents -= 10
	}
	return offered
}

func (c *catalogue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, len(c.offer(keyOf(r)).variants))
}

func newCatalogue(size int) *catalogue {
	stock := &catalogue{articles: map[int]*catalogueArticle{}}
	for i := 0; i < size; i++ {
		stock.articles[i] = newCatalogueArticle(i, 4)
	}
	return stock
}

func init() { register("collections", serveOffers) }

func serveOffers() { underLoad(newCatalogue(100_000), traffic.Load{Clients: 4}) }
